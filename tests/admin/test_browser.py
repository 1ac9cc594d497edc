"""What a person does with the page, in a real browser: Debian's chromium and chromium-driver."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from consumer_sdk import Consumer, admin
from tests.admin.busy import KEY, STUCK, busy

pytestmark = pytest.mark.campaign

WIDTHS = (1400, 820, 390)
PATIENCE = 120.0
TOKEN = "a-token-of-enough-characters"  # noqa: S105 - of these tests
PICTURES = os.environ.get("CONSUMER_SDK_PICTURES")
"""Where pictures of the page are kept, for a person to look at."""


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    """A browser without a window."""
    paths = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(paths):
        pytest.fail("needs a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = paths[0] or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1400,1100",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(paths[1]))
    try:
        yield driver
    finally:
        driver.quit()


def _until(browser: webdriver.Chrome, claim: Callable[[], Any]) -> Any:
    return WebDriverWait(browser, PATIENCE, poll_frequency=0.2).until(lambda _: claim())


def _row(browser: webdriver.Chrome, partition: str) -> dict[str, str]:
    """The texts of a partition's row, by column, at one moment; nothing where it is not shown."""
    script = """
        for (const row of document.querySelectorAll("#rows tr")) {
          const cells = [...row.children];
          if (cells[0].textContent === arguments[0])
            return Object.fromEntries(cells.map((c) => [c.dataset.name ?? "action", c.textContent]));
        }
        return {};
    """
    found: dict[str, str] = browser.execute_script(script, f"orders/{partition}")
    return found


def _click(browser: webdriver.Chrome, label: str) -> None:
    browser.find_element(By.CSS_SELECTOR, f'button[aria-label="{label}"]').click()


def _errors(browser: webdriver.Chrome) -> list[str]:
    log: list[dict[str, str]] = browser.get_log("browser")  # type: ignore[no-untyped-call]  # of selenium
    return [line["message"] for line in log if line["level"] == "SEVERE"]


def _size(browser: webdriver.Chrome, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def _scheme(browser: webdriver.Chrome, name: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": name}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


# -- what a person does ---------------------------------------------------------------------


async def test_person_finds_the_stuck_partition_pauses_and_resumes_it(
    browser: webdriver.Chrome,
) -> None:
    """By mouse; the key of the record is text, whatever it looks like."""
    async with busy() as consumer, admin.serve(consumer, address="127.0.0.1:0", actions=True) as at:
        await asyncio.to_thread(_find_and_pause, browser, at.address)
        assert _paused(consumer) == {STUCK: "on the page"}
        await asyncio.to_thread(_resume, browser)
        assert _paused(consumer) == {}
        assert _errors(browser) == []


def _paused(consumer: Consumer) -> dict[str, str]:
    found = {p.partition.id: p.pause_text for p in consumer.snapshot().partitions}
    return {id_: text for id_, text in found.items() if text}


def _find_and_pause(browser: webdriver.Chrome, address: str) -> None:
    browser.get(address)
    _until(browser, lambda: "running" in _row(browser, STUCK).get("pinned by", ""))
    assert KEY.decode() in _row(browser, STUCK)["pinned by"]
    assert not browser.find_elements(By.CSS_SELECTOR, "#rows b")
    by_age = browser.find_element(By.XPATH, "//th/button[text()='pinned by']")
    by_age.click()

    def first() -> str:
        return str(browser.execute_script("return document.querySelector('#rows td').textContent"))

    _until(browser, lambda: first() == f"orders/{STUCK}")
    _click(browser, f"pause orders/{STUCK}")
    _until(browser, lambda: _row(browser, STUCK)["state"] == "paused: operator")
    assert _row(browser, STUCK)["action"] == "resume"


def _resume(browser: webdriver.Chrome) -> None:
    _click(browser, f"resume orders/{STUCK}")
    _until(browser, lambda: _row(browser, STUCK)["state"] == "reading")


async def test_person_does_it_by_keyboard(browser: webdriver.Chrome) -> None:
    """A slash, the name, Tab and Enter; arrows go from row to row, and the focus stays there."""
    async with busy() as consumer, admin.serve(consumer, address="127.0.0.1:0", actions=True) as at:
        await asyncio.to_thread(_by_keyboard, browser, at.address)
        assert _paused(consumer) == {"4": "on the page"}


def _by_keyboard(browser: webdriver.Chrome, address: str) -> None:
    browser.get(address)
    _until(browser, lambda: _row(browser, "5"))
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys("/")
    focused = browser.switch_to.active_element
    assert focused.get_attribute("id") == "filter"
    focused.send_keys("orders/3")
    assert not _row(browser, "4")
    focused.send_keys(Keys.ESCAPE)
    _until(browser, lambda: _row(browser, "4"))
    button = browser.find_element(By.CSS_SELECTOR, 'button[aria-label="pause orders/3"]')
    browser.execute_script("arguments[0].focus()", button)
    button.send_keys(Keys.ARROW_DOWN)
    below = browser.switch_to.active_element
    assert below.get_attribute("aria-label") == "pause orders/4"
    below.send_keys(Keys.ENTER)
    _until(browser, lambda: _row(browser, "4")["state"] == "paused: operator")


async def test_page_fits_and_is_readable(browser: webdriver.Chrome) -> None:
    """At three widths, dark and light: nothing is cut off, and texts stand out from their ground."""
    async with busy() as consumer, admin.serve(consumer, address="127.0.0.1:0", actions=True) as at:
        await asyncio.to_thread(_look, browser, at.address)


def _look(browser: webdriver.Chrome, address: str) -> None:
    browser.get(address)
    _until(browser, lambda: _row(browser, "5"))
    grounds = set()
    for scheme in ("light", "dark"):
        _scheme(browser, scheme)
        for width in WIDTHS:
            _size(browser, width)
            fits = f"return innerWidth === {width} && !({SCROLLS})"
            _until(browser, partial(browser.execute_script, fits))
            assert browser.execute_script(CUT_OFF) == []
            _keep_picture(browser, f"page-{scheme}-{width}.png")
        assert browser.execute_script(CONTRAST) >= 4.5
        grounds.add(
            browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        )
    assert len(grounds) == 2


SCROLLS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
CUT_OFF = """
    const inside = (b) => b.left >= 0 && b.right <= innerWidth + 1;
    const seen = [...document.querySelectorAll("button, input, .pill, .card, figure, td")];
    return seen.map((e) => [e.textContent, e.getBoundingClientRect()])
      .filter(([, box]) => box.width && !inside(box)).map(([text]) => text);
"""
CONTRAST = """
    const light = (color) => {
      const parts = color.match(/[\\d.]+/g).slice(0, 3).map((n) => n / 255);
      const [r, g, b] = parts.map((n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (e) => {
      const color = getComputedStyle(e).backgroundColor;
      return /, 0\\)$/.test(color) && e.parentElement ? ground(e.parentElement) : color;
    };
    const texts = [...document.querySelectorAll("td, .quiet, .pill, button, b, h1, h2, dt")];
    return Math.min(...texts.map((e) => {
      const both = [light(getComputedStyle(e).color), light(ground(e))].sort((a, b) => a - b);
      return (both[1] + 0.05) / (both[0] + 0.05);
    }));
"""


def _keep_picture(browser: webdriver.Chrome, name: str) -> None:
    if PICTURES:
        browser.save_screenshot(str(Path(PICTURES) / name))


async def test_person_goes_from_consumer_to_consumer(browser: webdriver.Chrome) -> None:
    """Of those of one process; what is paused is the one that is shown."""
    async with (
        busy() as one,
        busy(group="mails") as two,
        admin.serve(one, two, address="127.0.0.1:0", actions=True) as at,
    ):
        await asyncio.to_thread(_go_to_the_second, browser, at.address)
        assert (_paused(one), _paused(two)) == ({}, {"2": "on the page"})


def _go_to_the_second(browser: webdriver.Chrome, address: str) -> None:
    browser.get(address)
    _until(browser, lambda: _row(browser, "5"))
    browser.find_element(By.XPATH, "//nav/button[2]").click()
    _until(browser, lambda: browser.find_element(By.ID, "name").text.startswith("mails"))
    chosen = browser.find_elements(By.CSS_SELECTOR, 'nav [aria-current="true"]')
    assert [each.text for each in chosen] == ["mails · memory"]
    _click(browser, "pause orders/2")
    _until(browser, lambda: _row(browser, "2")["state"] == "paused: operator")


async def test_person_shows_the_token_once(browser: webdriver.Chrome) -> None:
    """A wrong one is told; after the right one the page comes, also when it is loaded again."""
    async with busy() as consumer, admin.serve(consumer, address="127.0.0.1:0", token=TOKEN) as at:
        await asyncio.to_thread(_log_in, browser, at.address)


def _log_in(browser: webdriver.Chrome, address: str) -> None:
    browser.get(address)
    field = browser.find_element(By.ID, "token")
    field.send_keys("a guess", Keys.ENTER)
    notice = browser.find_element(By.ID, "notice")
    _until(browser, lambda: notice.text == "this is not the token")
    field.clear()
    field.send_keys(TOKEN, Keys.ENTER)
    _until(browser, lambda: _row(browser, "5"))
    browser.refresh()
    _until(browser, lambda: _row(browser, "5"))
    assert not browser.find_elements(By.CSS_SELECTOR, "#rows button:not([hidden] *)")
    assert browser.execute_script("return document.cookie") == ""


async def test_consumer_that_ends_is_called_old_and_waits_for_no_browser(
    browser: webdriver.Chrome,
) -> None:
    """The server closes though the page is open; the page says that what it shows is old."""
    async with busy() as consumer, admin.serve(consumer, address="127.0.0.1:0", actions=True) as at:
        await asyncio.to_thread(_stop, browser, at.address)
        while consumer.state != "closed":
            await asyncio.sleep(0.05)
    await asyncio.to_thread(_until, browser, lambda: "has not answered" in browser.page_source)


def _stop(browser: webdriver.Chrome, address: str) -> None:
    browser.get(address)
    _until(browser, lambda: _row(browser, "5"))
    browser.find_element(By.CSS_SELECTOR, '[data-all="stop"]').click()
    dialog = browser.find_element(By.ID, "sure")
    assert dialog.is_displayed()
    browser.find_element(By.ID, "sure-yes").click()
    _until(browser, lambda: browser.find_element(By.ID, "state").text in {"stopping", "closed"})
