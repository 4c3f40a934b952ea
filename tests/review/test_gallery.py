"""The gallery and the names of annotators in a real browser: keyboard alone, fingers, killed servers, two people."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chromium import needs_chromium
from review.scripted_user import LABEL, in_gallery, is_wrong, one_by_one, pictured_folder
from review.synthetic import Completed
from review.test_page import Served, Server, cell, press, serve, stored, until
from satl.review.database import DecisionRequest, ReviewStore

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

pytestmark = needs_chromium("the gallery of the review page")

__all__ = ["serve"]  # the fixture

STATE = "document.querySelector('#gallery').dataset.state"
NAMES = "[...document.querySelectorAll('#tiles .tile')].map(tile => tile.dataset.image)"
MARKS = "[...document.querySelectorAll('#tiles .tile')].map(tile => tile.dataset.mark)"
DOES = "document.querySelector('#gallery-confirm').dataset.does"
FASTER = 5


def open_gallery(served: Served, context: BrowserContext, size: int = 24) -> Page:
    """The gallery with so many pictures a page."""
    page = served.open(context)
    page.keyboard.press("g")
    page.wait_for_selector("#gallery[data-state=ready]")
    page.select_option("#gallery-size", str(size))
    until(page, f"{STATE} === 'ready' && {NAMES}.length <= {size}")
    page.locator(".tile").first.focus()
    return page


def confirm(page: Page) -> list[str]:
    """Enter until the page is decided: screen after screen, each when it was seen. Return the names on the page."""
    names: list[str] = page.evaluate(NAMES)
    while page.evaluate(f"{STATE} === 'ready' && {NAMES}[0] === {json.dumps(names[0])}"):
        ready = "!document.querySelector('#tiles .tile[data-visible=true][data-picture=loading]')"
        until(
            page,
            f"{STATE} !== 'ready' || ({ready} && Boolean(document.querySelector('#tiles [data-visible=true]')))",
        )
        page.keyboard.press("Enter")
        time.sleep(0.05)
    until(page, f"['ready', 'end'].includes({STATE})")
    return names


def values(served: Served) -> dict[str, int | None]:
    return {decision.image: decision.value for decision in served.store.decisions()}


def test_wrong_ones_are_marked_the_rest_accepted_and_all_undone_at_once_by_keyboard(
    browser: Browser, tmp_path: Path, serve: Callable[[Completed], Served]
) -> None:
    served = serve(pictured_folder(tmp_path, 60, (160, 120)))
    context = browser.new_context()
    page = open_gallery(served, context)
    assert page.evaluate(NAMES) == [f"{i:04d}.jpg" for i in range(24)]  # highest score first
    assert page.locator("#gallery-shown").inner_text() == "24 shown, 60 undecided"
    # Right, down and back, then one wrong and one left open.
    tops = page.evaluate(
        "[...document.querySelectorAll('.tile')].map(tile => tile.getBoundingClientRect().top)"
    )
    columns = tops.count(tops[0])
    assert 1 < columns < 12
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("l")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    page.keyboard.press("Space")  # not wrong after all
    marks = ["accept"] * 24
    marks[1], marks[1 + columns] = "wrong", "leave"
    assert page.evaluate(MARKS) == marks
    assert page.locator("#gallery-means").inner_text() == "22 as suggested, 1 wrong, 1 left open"
    names = confirm(page)
    stored(page)
    expected = {name: 1 for i, name in enumerate(names) if i != 1 + columns} | {names[1]: -1}
    assert values(served) == expected
    requests = {row[0] for row in served.store._db.execute("SELECT request FROM decision")}
    assert len(requests) == 1
    # The next page is there; undo brings this one back as it was, all at once, and it can be decided otherwise.
    assert page.evaluate(f"{NAMES}[0]") == "0024.jpg"
    page.keyboard.press("u")
    until(page, MARKS, marks)
    assert values(served) == {}
    page.locator(".tile").nth(1).click()
    page.locator(".tile").nth(2).click(modifiers=["Shift"])
    confirm(page)
    stored(page)
    assert values(served) == {name: 1 for i, name in enumerate(names) if i not in (2, 1 + columns)}
    # After a reload undo still takes the whole batch back.
    page.reload()
    page.wait_for_selector("#gallery[data-state=ready]")
    page.keyboard.press("u")
    page.wait_for_selector("#toast >> text=Undone: 22 decisions")
    assert values(served) == {}
    until(page, f"{NAMES}[0]", "0000.jpg")
    # A picture is enlarged and put away; a key that is held down decides nothing more.
    page.locator(".tile").nth(3).focus()
    page.keyboard.press("z")
    page.wait_for_selector("#large[open]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#large:not([open])", state="attached")
    held = "new KeyboardEvent('keydown', { key: 'Enter', code: 'Enter', bubbles: true, repeat: true })"
    page.evaluate(f"for (let i = 0; i < 20; i += 1) document.querySelector('.tile').dispatchEvent({held})")
    time.sleep(0.2)
    assert values(served) == {}
    context.close()


def test_orders_bands_decided_ones_and_the_end_of_a_class(
    browser: Browser, tmp_path: Path, serve: Callable[[Completed], Served]
) -> None:
    served = serve(pictured_folder(tmp_path, 30, (160, 120)))
    context = browser.new_context(viewport={"width": 1300, "height": 1900})
    page = open_gallery(served, context, 48)
    page.select_option("#gallery-order", "lowest")
    until(page, f"{NAMES}[0]", "0029.jpg")
    page.select_option("#gallery-order", "doubtful")
    until(page, f"{STATE} === 'ready' && {NAMES}[0] === '0029.jpg'")  # all are proposed as present
    page.locator(".tile").first.focus()
    page.keyboard.press("l")
    confirm(page)
    stored(page)
    page.wait_for_selector("#gallery-message >> text=1 suggestion of this class is still open.")
    page.get_by_role("button", name="Look at them").click()
    until(page, NAMES, ["0029.jpg"])
    page.locator(".tile").first.focus()
    page.keyboard.press("Space")
    confirm(page)
    stored(page)
    page.wait_for_selector("#gallery-message >> text=Every suggestion in the chosen bands is decided.")
    # What was decided is shown with its marks, and only what changes is sent.
    page.locator("[name=state]").select_option("decided")
    until(page, f"{STATE} === 'ready' && {NAMES}.length === 30")
    assert page.evaluate(f"{MARKS}.filter(mark => mark === 'wrong').length") == 1
    page.locator(".tile[data-mark=wrong]").click()
    confirm(page)
    stored(page)
    assert set(values(served).values()) == {1}
    assert served.store.changes(0)["last"] == 31
    page.get_by_label("accepted").check()
    page.get_by_label("for review").uncheck()
    page.wait_for_selector("#gallery[data-state=end]")
    page.wait_for_selector("#gallery-message >> text=There is no suggestion in the chosen bands.")
    context.close()


def test_a_batch_is_sent_once_however_flaky_the_connection(
    browser: Browser, tmp_path: Path, serve: Callable[[Completed], Served]
) -> None:
    served = serve(pictured_folder(tmp_path, 60, (160, 120)))
    context = browser.new_context(viewport={"width": 1300, "height": 1900})
    page = open_gallery(served, context)
    bodies: list[Any] = []
    flaky = True

    def lost(route: Route) -> None:
        """The server stores it, and the answer is lost as long as the connection is flaky."""
        bodies.append(route.request.post_data_json)
        response = route.fetch()
        if flaky:
            route.abort()
        else:
            route.fulfill(response=response)

    page.route("**/api/decide", lost)
    names = confirm(page)
    page.wait_for_selector("#banner >> text=1 decision not stored yet")
    # Meanwhile nothing more is taken, and nothing is forgotten.
    before = page.evaluate(NAMES)
    until(page, DOES, "decide")
    page.keyboard.press("Enter")
    for _ in range(12_000):
        if len(bodies) >= 3:
            break
        page.wait_for_timeout(50)
    assert len(bodies) >= 3
    flaky = False
    stored(page)
    page.wait_for_selector("#banner", state="hidden")
    assert page.evaluate(NAMES) == before
    assert len({body["request"] for body in bodies}) == 1
    assert values(served) == dict.fromkeys(names, 1)
    assert served.store.changes(0)["last"] == 24
    page.unroute("**/api/decide")
    # Pictures and pages that could not be loaded come when the server is back.
    context.set_offline(True)
    page.select_option("#gallery-order", "lowest")
    page.wait_for_selector("#gallery[data-state=failed]")
    context.set_offline(False)
    until(page, f"{STATE} === 'ready' && {NAMES}[0] === '0059.jpg'")
    context.close()


def test_what_another_tab_decided_is_not_overwritten(
    browser: Browser, tmp_path: Path, serve: Callable[[Completed], Served]
) -> None:
    served = serve(pictured_folder(tmp_path, 20, (160, 120)))
    context = browser.new_context(viewport={"width": 1300, "height": 1900})
    page = open_gallery(served, context)
    with ReviewStore(served.completed.out) as rival:
        # What is heard in time is shown as it is now.
        rival.decide("elsewhere", "q", [DecisionRequest("0007.jpg", LABEL, -1, None)])
        until(page, f"{MARKS}[7]", "wrong")
        page.route("**/api/changes*", lambda route: route.abort())
        page.locator(".tile").nth(2).click()
        rival.decide("elsewhere", "r", [DecisionRequest("0005.jpg", LABEL, -1, None)])
    until(page, DOES, "decide")
    page.keyboard.press("Enter")
    page.wait_for_selector("#toast >> text=none was stored")
    assert values(served) == {"0005.jpg": -1, "0007.jpg": -1}
    marks = ["accept"] * 20
    marks[2] = marks[5] = marks[7] = "wrong"
    until(page, MARKS, marks)
    confirm(page)
    stored(page)
    assert values(served) == {f"{i:04d}.jpg": -1 if i in (2, 5, 7) else 1 for i in range(20)}
    context.close()


def test_the_server_is_killed_in_the_middle_of_a_gallery(browser: Browser, tmp_path: Path) -> None:
    completed = pictured_folder(tmp_path, 48, (160, 120))
    context = browser.new_context(viewport={"width": 1300, "height": 1900})
    with Server(completed.out) as server:
        page = context.new_page()
        page.goto(server.start())
        page.wait_for_selector("#card[data-state=ready]")
        page.keyboard.press("g")
        page.wait_for_selector("#gallery[data-state=ready]")
        until(page, DOES, "decide")
        server.kill()
        page.keyboard.press("Enter")
        page.wait_for_selector("#banner >> text=not stored yet")
        server.start()
        page.wait_for_selector("#banner", state="hidden")
        stored(page)
    with ReviewStore(completed.out) as store:
        assert len(store.decisions()) == 48
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fingers_on_a_phone(
    browser: Browser, tmp_path: Path, serve: Callable[[Completed], Served], scheme: Any
) -> None:
    served = serve(pictured_folder(tmp_path, 24, (160, 120)))
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, color_scheme=scheme, has_touch=True, is_mobile=True
    )
    problems: list[str] = []
    page = served.open(context)
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.tap("#by-gallery")
    page.wait_for_selector("#gallery[data-state=ready]")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for name in ("gallery-confirm", "gallery-undo", "by-gallery", "people-button", "gallery-order"):
        box = page.locator(f"#{name}").bounding_box()
        assert box is not None
        assert box["height"] >= 38
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    tile = page.locator(".tile")
    tile.nth(1).tap(position={"x": 20, "y": 60})
    for _ in range(2):
        tile.nth(2).tap(position={"x": 20, "y": 60})
    for _ in range(3):
        tile.nth(3).tap(position={"x": 20, "y": 60})
    assert page.evaluate(f"{MARKS}.slice(0, 4)") == ["accept", "wrong", "leave", "accept"]
    # What is below must have been on the screen before it is decided.
    assert page.evaluate(DOES) == "show"
    can_go_on = f"{STATE} === 'end' || !document.querySelector('#gallery-confirm').disabled"
    for _ in range(1000):
        until(page, can_go_on)
        if page.evaluate(STATE) == "end":
            break
        page.tap("#gallery-confirm")
        time.sleep(0.15)
    stored(page)
    assert values(served) == {f"{i:04d}.jpg": -1 if i == 1 else 1 for i in range(24) if i != 2}
    page.tap("#gallery-undo")
    until(page, f"{NAMES}.length", 24)
    assert values(served) == {}
    # On its side, and on a tablet, nothing is wider than the screen either.
    for width, height in ((740, 360), (820, 1100)):
        page.set_viewport_size({"width": width, "height": height})
        until(page, f"innerWidth === {width} && document.documentElement.scrollWidth <= innerWidth")
    assert problems == []
    context.close()


def test_without_pictures_the_names_are_shown(
    browser: Browser, tmp_path: Path, serve: Callable[[Completed], Served]
) -> None:
    completed = pictured_folder(tmp_path, 12, (64, 48))
    (tmp_path / "images" / "0003.jpg").write_bytes(b"\xff\xd8\xffno picture")
    served = serve(completed)
    context = browser.new_context(viewport={"width": 1300, "height": 1900})
    page = open_gallery(served, context)
    page.wait_for_selector(".tile .missing >> text=No picture")
    until(page, "document.querySelectorAll('.tile')[3].title.includes('0003.jpg')")
    until(page, DOES, "decide")
    context.close()
    (tmp_path / "images").rename(tmp_path / "elsewhere")
    bare = serve(completed)
    context = browser.new_context(viewport={"width": 1300, "height": 1900})
    page = open_gallery(bare, context)
    assert page.locator(".missing").first.inner_text() == "0000.jpg"
    context.close()


def name_oneself(page: Page, name: str) -> None:
    page.fill("#your-name", name)
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#people-name >> text={name}")  # the page is loaded again
    page.wait_for_selector("#card[data-state=ready]")


def test_two_people_on_one_server_disagree_and_settle_it(
    browser: Browser, tmp_path: Path, serve: Callable[[Completed], Served]
) -> None:
    served = serve(pictured_folder(tmp_path, 24, (160, 120)))
    contexts = [browser.new_context(viewport={"width": 1300, "height": 1900}) for _ in range(2)]
    ann = served.open(contexts[0])
    ann.keyboard.press("p")
    name_oneself(ann, "Ann")
    ann.keyboard.press("g")
    ann.wait_for_selector("#gallery[data-state=ready]")
    confirm(ann)
    stored(ann)
    # Somebody has left a name: the next person is asked for one, and starts from nothing.
    bob = contexts[1].new_page()
    bob.goto(f"{served.home}?token={served.gate.token}")
    bob.wait_for_selector("#people[open]")
    name_oneself(bob, "Bob")
    assert bob.inner_text("#overall-text") == "0 of 24 done"
    assert bob.locator(".votes").count() == 0
    press(bob, "r")
    for _ in range(3):
        press(bob, "a")
    stored(bob)
    assert served.store.annotators() == {"Ann": 24, "Bob": 4}
    # Both see it; Ann settles it after she has seen what Bob says.
    for page in (ann, bob):
        page.wait_for_selector("#disagreements >> text=1 disagreement to settle")
    bob.reload()
    bob.wait_for_selector("#card[data-state=ready]")
    assert bob.inner_text("#people-name") == "Bob"
    ann.click("#disagreements")
    ann.wait_for_selector(".votes >> text=your decision is final")
    assert cell(ann) == ("0000.jpg", LABEL)
    assert ann.inner_text(".votes li:nth-child(2)").split() == ["Bob", "✕", "absent"]
    press(ann, "r")
    stored(ann)
    assert {d.image: d.value for d in served.store.decisions()}["0000.jpg"] == -1
    bob.wait_for_selector("#disagreements", state="hidden")
    ann.keyboard.press("u")
    bob.wait_for_selector("#disagreements >> text=1 disagreement to settle")
    ann.keyboard.press("p")
    ann.wait_for_selector("#agreement >> text=all classes")
    assert "75.0 %" in ann.inner_text("#agreement")
    for context in contexts:
        context.close()


def test_the_gallery_is_at_least_five_times_as_fast(
    browser: Browser, tmp_path: Path, serve: Callable[[Completed], Served]
) -> None:
    seconds = []
    for way in (one_by_one, in_gallery):
        served = serve(pictured_folder(tmp_path / way.__name__, 200))
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.goto(f"{served.home}?token={served.gate.token}")
        seconds.append(way(page, 200))
        assert values(served) == {f"{i:04d}.jpg": -1 if is_wrong(f"{i:04d}.jpg") else 1 for i in range(200)}
        context.close()
    assert seconds[0] >= FASTER * seconds[1], seconds
