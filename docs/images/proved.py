"""Take labeling.png and proved.png: the page of the demonstration, labeled by its robot, in and after an audit.

`PYTHONPATH=tests python docs/images/proved.py` takes about two minutes and requires Chromium.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report.browser import Browser, Page, find_chromium

PORT = 8797
PANEL = """(({x, y, width}) => ({x, y, width, height: 700, scale: 1.5}))(
    document.querySelector('aside').getBoundingClientRect())"""


def take(page: Page) -> tuple[bytes, bytes]:
    """Sign in and let the robot label. Photograph the page in the audit, and the panel when it shows the proof."""
    page.wait("document.activeElement && document.activeElement.id === 'name'")
    page.type("a")
    page.press("Enter", 13)
    page.wait("!!document.getElementById('robot') && !!document.querySelector('.card-head b')")
    page.evaluate("document.getElementById('robot').click()")
    page.wait("/[1-9][0-9] audited rows/.test(document.body.innerText)")
    shot = {"x": 0, "y": 0, "width": 1200, "height": 800, "scale": 1}
    audit = page.call("Page.captureScreenshot", format="png", clip=shot)["data"]
    page.wait("document.body.innerText.includes('Proved')")
    time.sleep(2)  # the curve is drawn
    page.call("Emulation.setDeviceMetricsOverride", width=1200, height=1000, deviceScaleFactor=1, mobile=False)
    clip = page.evaluate(PANEL)
    proof = page.call("Page.captureScreenshot", format="png", clip=clip)["data"]
    return base64.b64decode(audit), base64.b64decode(proof)


def main() -> None:
    """Serve the demonstration and write the pictures beside this file."""
    program = find_chromium()
    if program is None:
        sys.exit("Chromium is not installed.")
    command = [sys.executable, "-m", "surefoot.cli", "serve", "--demo", "--no-open", "--target", "0.1"]
    with tempfile.TemporaryDirectory() as folder, Browser(program, timeout=600) as browser:
        server = subprocess.Popen([*command, "--port", str(PORT)], cwd=folder)
        try:
            time.sleep(10)
            pictures = take(browser.visit(f"http://127.0.0.1:{PORT}", width=1200))
        finally:
            server.terminate()
            server.wait()
    for name, picture in zip(("labeling.png", "proved.png"), pictures, strict=True):
        Path(__file__).with_name(name).write_bytes(picture)


if __name__ == "__main__":
    main()
