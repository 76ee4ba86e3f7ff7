import sys,time,faulthandler
faulthandler.dump_traceback_later(25, repeat=True)
import numpy as np, surefoot as sf
from surefoot.solvers import newton
co=newton.centre_objective
def c(obj,start,tau,*a,**k):
    t=time.time(); r=co(obj,start,tau,*a,**k); print(f"  centre tau {tau:.3g} steps {r[2]} {time.time()-t:.1f}s",flush=True); return r
newton.centre_objective=c
n=int(sys.argv[1]); N=10000
rng=np.random.default_rng(0); yy=rng.integers(0,2,N); U=rng.normal(size=(N,20)); U[:,:2]+=1.5*(2*yy-1)[:,None]; U/=6.5
rng=np.random.default_rng(1); y=rng.integers(0,2,n); X=rng.normal(size=(n,20)); X[:,:2]+=1.5*(2*y-1)[:,None]; X/=6.5
sys.path.insert(0,'benchmarks')
from gpu import radius_of
t=time.time(); r=radius_of((X,y,U)); print('radius',r,time.time()-t,flush=True)
t=time.time(); cl=sf.RobustLogisticRegression(radius=r,solver=sf.Newton("cuda",memory=64<<30)).fit(X,y,X_unlabeled=U); print('fit',time.time()-t,cl.certificate_.gap)
