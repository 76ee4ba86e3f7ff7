"""Load test of the labeling page: 100,000 rows of 30 columns, clients that label without pause, and fits in progress.

    python benchmarks/serve.py [--rows 100000] [--columns 30] [--clients 8] [--answers 150]

A real `surefoot serve` runs in a process of its own. Each client is a thread with a connection of its own, and sends
the next label as soon as it has the next row. Times are from label to next row: the label is on disk, and the card of
the next row has arrived. The model is trained again and again in the meantime. Prints one line of CSV and a note.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pandas as pd

from surefoot.serve import bind


def write_pool(path: Path, rows: int, columns: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    truth = X[:, :5].sum(axis=1) + rng.normal(0, 1.0, rows) > 0
    frame = pd.DataFrame(X.round(3), columns=[f"column_{k}" for k in range(columns)])
    frame.assign(label="").to_csv(path, index=False)
    return np.where(truth, "yes", "no")


class Client(threading.Thread):
    """An annotator that labels as soon as a row arrives."""

    def __init__(self, port: int, name: str, answers: int, truth: np.ndarray) -> None:
        super().__init__()
        self.port, self.person, self.answers, self.truth = port, name, answers, truth
        self.seconds: list[float] = []
        self.fitting = 0

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        headers: dict[str, str] = {}

        def ask(method: str, path: str, body: str | None = None, **more: str) -> tuple[bytes, http.client.HTTPResponse]:
            connection.request(method, path, body, {**headers, **more})
            answer = connection.getresponse()
            return answer.read(), answer

        page, _ = ask("GET", "/hello")
        token = re.search(rb'name="token" value="([^"]+)"', page)[1].decode()
        form = urlencode({"name": self.person, "token": token})
        _, answer = ask("POST", "/hello", form, **{"content-type": "application/x-www-form-urlencoded"})
        headers["cookie"] = answer.getheader("set-cookie").partition(";")[0]
        page, _ = ask("GET", "/")
        headers["x-write-token"] = re.search(rb'write-token" content="(\w+)"', page)[1].decode()
        state = json.loads(ask("GET", "/api/rows")[0])
        for _ in range(self.answers):
            row = state["rows"][0]["row"]
            have = [card["row"] for card in state["rows"]]  # as the page does: it keeps the cards that it has
            body = json.dumps({"row": row, "label": str(self.truth[row]), "have": have, "beyond": True})
            began = time.perf_counter()
            content, _ = ask("POST", "/api/answer", body)
            self.seconds.append(time.perf_counter() - began)
            state = json.loads(content)
            self.fitting += state["standing"]["fit"]["running"] is not None


def cpu_seconds(pid: int) -> float:
    """Processor time of a process up to now, over all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int, what: str = "VmHWM") -> float:
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--answers", type=int, default=150, help="labels per client")
    given = parser.parse_args()
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        pool = Path(folder) / "pool.csv"
        truth = write_pool(pool, given.rows, given.columns)
        command = [sys.executable, "-m", "surefoot.cli", "serve", str(pool), "--label", "label", "--classes", "no,yes"]
        server = subprocess.Popen(
            [*command, "--no-open", "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        said = ""
        while "ready" not in said:
            line = server.stdout.readline()
            if not line:
                sys.exit(said)
            said += line
        ready = re.search(r"read in ([\d.]+) s, ready ([\d.]+) s", said.replace("\n", " "))
        threading.Thread(target=server.stdout.read, daemon=True).start()
        clients = [Client(port, f"client {k}", given.answers, truth) for k in range(given.clients)]
        began, used, own = time.perf_counter(), cpu_seconds(server.pid), time.process_time()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        took, used = time.perf_counter() - began, cpu_seconds(server.pid) - used
        own = time.process_time() - own
        workers = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        memory = memory_mb(server.pid)
        worker = sum(memory_mb(int(pid)) for pid in workers)
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    times = 1000 * np.concatenate([client.seconds for client in clients])
    fitting = sum(client.fitting for client in clients) / len(times)
    print(
        "rows,columns,clients,answers,read_s,ready_s,median_ms,p99_ms,max_ms,per_s,cpu_ms,client_cpu_ms,during_fits,"
        "server_mb,worker_mb,cores"
    )
    found = [given.rows, given.columns, given.clients, len(times), ready[1], ready[2]]
    found += [f"{value:.1f}" for value in (np.median(times), np.quantile(times, 0.99), times.max())]
    found.append(f"{len(times) / took:.0f}")
    found += [f"{1000 * value / len(times):.2f}" for value in (used, own)]
    found += [f"{fitting:.2f}", f"{memory:.0f}", f"{worker:.0f}", os.cpu_count()]
    print(*found, sep=",")


if __name__ == "__main__":
    main()
