"""The page in a real browser: what it shows, how it is used without a mouse, what it saves, what it never runs."""

import io
import json
import re
import shutil
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest
from PIL import Image

from tests.inspector.serving import PATIENCE

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
playwright.expect.set_options(timeout=1000 * PATIENCE)  # what is awaited comes, however busy the machine is
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium here; `make browser` installs it or says why not"
    ),
]
SOURCE, TARGET = "das Haus am See", "the house at the lake"
LONG = " ".join(f"wort{number}" for number in range(60))
HEBREW = "הכלב הקטן רץ"
ATTACK = "<script>hacked=1</script> <img src=x onerror=hacked=2>"


@pytest.fixture(scope="module")
def browser():
    options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield found
        found.close()


@pytest.fixture
def visit(browser, site):
    """Open the page in a given state; at the end nothing may have gone wrong in the console."""
    complaints, outside, contexts = [], [], []

    def listen(page):
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        page.on("request", lambda request: request.url.startswith(own) or outside.append(request.url))

    own = (site.address, "blob:", "about:")

    def open_page(path="", *, width=1200, height=900, scheme="light", **state):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        listen(page)
        page.goto(f"{site.address}{path}#{urlencode({'beam': 2, **state})}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert outside == []
    expected = re.compile(r"status of (413|422|503)|ERR_FAILED")  # the browser notes refused requests
    assert [text for text in complaints if not expected.search(text)] == []


def save(page, name):
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name, exact=True).click()
    return waiting.value.path().read_bytes()


def test_a_sentence_is_translated_and_its_words_show_their_links(visit):
    page = visit()
    page.get_by_label("Sentence").fill(SOURCE)
    page.keyboard.press("Enter")
    words = page.locator(".words.target .word")
    words.first.wait_for()
    assert page.locator(".words.source .word").all_inner_texts() == SOURCE.split()
    assert page.locator(".link").count() >= 1
    linked = int(page.locator(".link").first.get_attribute("data-target"))
    words.nth(linked).hover()
    playwright.expect(page.locator(".caption")).to_have_text(re.compile("“.+” ↔ “.+” [01]"))
    playwright.expect(page.locator(".word.linked")).to_have_count(1)
    # the beam's alternatives: choosing one shows its words
    options = page.locator(".alternatives button")
    assert 2 <= options.count() <= 5
    second = options.nth(1).locator("span").first.inner_text()
    options.nth(1).click()
    playwright.expect(words).to_have_text(second.split())
    # and from there to the heat maps
    page.get_by_role("button", name="Look closer").click()
    page.locator(".maps svg").first.wait_for()
    assert page.get_by_label("Translation", exact=True).input_value() == second


def test_a_pair_has_two_heat_maps_with_numbers_entropy_and_disagreement(visit):
    page = visit(view="pair", source=SOURCE, target=TARGET)
    page.locator(".maps svg").nth(1).wait_for()
    maps = page.locator(".maps svg")
    assert maps.count() == 2
    cells = len(SOURCE.split()) * len(TARGET.split())
    assert [maps.nth(n).locator(".cell").count() for n in (0, 1)] == [cells, cells]
    assert maps.nth(0).bounding_box()["y"] == maps.nth(1).bounding_box()["y"]  # side by side
    assert maps.first.get_by_text("entropy").count() == 1
    maps.first.locator(".cell").nth(1).hover()
    told = re.compile(r"“the” ← “Haus”: prior [\d.<]+, posterior [\d.<]+")
    playwright.expect(page.locator(".caption").first).to_have_text(told)
    disagreements = page.locator(".disagreements button")
    assert disagreements.count() >= 1
    disagreements.first.click()
    page.wait_for_url("**row=*")


def test_k_and_the_way_to_predict_change_the_next_word(visit):
    page = visit(view="pair", source=SOURCE, target=TARGET, row=1, mode="kmax", k=1)
    summary = page.locator(".next .caption")
    playwright.expect(summary).to_contain_text("distance from exact")

    def distance():
        return float(summary.inner_text().rsplit(" ", 1)[1])

    assert page.get_by_text("the", exact=True).count() >= 1  # the words so far
    one = distance()
    assert one > 0
    slider = page.get_by_role("slider")
    slider.focus()
    with page.expect_response("**/api/next"):
        page.keyboard.press("End")  # every position: nothing is left out
    playwright.expect(summary).to_contain_text("distance from exact 0.000")
    for mode in ("soft", "sampled", "exact"):
        with page.expect_response("**/api/next") as waiting:
            page.get_by_role("radio", name=mode).check()
        assert waiting.value.ok
    playwright.expect(summary).to_contain_text("distance from exact 0.000")
    assert page.locator(".bar-row").count() >= 5


def test_two_runs_are_compared_on_one_sentence(visit):
    page = visit(view="compare", source=SOURCE, target=TARGET, run="variational", other="soft")
    page.locator(".results svg").nth(1).wait_for()
    assert page.locator(".results h3").all_inner_texts()[:2] == ["variational", "soft"]
    page.locator(".results svg").first.locator(".cell").first.hover()
    told = re.compile(r"variational [\d.<]+, soft [\d.<]+")
    playwright.expect(page.locator(".results > .caption")).to_have_text(told)
    assert page.get_by_text("log p per piece").count() == 2
    found = json.loads(save(page, "JSON"))
    assert [one["aligned"]["run"] for one in found] == ["variational", "soft"]


def test_everything_can_be_saved(visit):
    page = visit(view="pair", source=SOURCE + " <b>&", target=TARGET)
    page.locator(".maps svg").first.wait_for()
    picture = save(page, "SVG").decode()
    assert picture.startswith("<?xml")
    assert "&lt;b&gt;&amp;" in picture
    assert "style=" not in picture
    assert "class=" not in picture  # complete in itself
    assert save(page, "PNG").startswith(b"\x89PNG")
    result = json.loads(save(page, "JSON"))["results"][0]
    assert save(page, "Pharaoh").decode().strip() == result["pharaoh"]
    assert re.fullmatch(r"(\d+-\d+:[\d.e-]+ ?)+", result["pharaoh"])


def test_a_saved_picture_is_xml_whatever_the_words_hold(visit):
    page = visit(view="pair", source="ja\x01nein <b>&", target="y\x1bes")
    page.locator(".maps svg").first.wait_for()
    picture = ElementTree.fromstring(save(page, "SVG"))
    assert "ja\ufffdnein" in {text for element in picture.iter() for text in element.itertext()}


def test_a_link_restores_what_was_seen(visit):
    page = visit(view="pair")
    page.get_by_label("Source").fill(SOURCE)
    page.get_by_label("Translation", exact=True).fill(TARGET)
    page.get_by_role("button", name="Align", exact=True).click()
    page.locator(".maps svg").first.wait_for()
    page.get_by_role("radio", name="soft").check()
    page.locator(".row-label").nth(2).click()
    playwright.expect(page.locator(".next h3")).to_contain_text("the house")
    link = page.url
    again = visit()
    again.goto("about:blank")
    again.goto(link)
    playwright.expect(again.locator(".next h3")).to_contain_text("the house")
    assert again.get_by_role("radio", name="soft").is_checked()
    assert again.get_by_label("Source").input_value() == SOURCE


def test_it_is_usable_without_a_mouse(visit):
    page = visit()
    page.get_by_role("tab", name="Translate").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("tab", name="Align a pair")).to_have_attribute("aria-selected", "true")
    page.get_by_label("Source").focus()
    page.keyboard.type(SOURCE)
    page.keyboard.press("Tab")
    page.keyboard.type(TARGET)
    page.keyboard.press("Enter")
    page.locator(".maps svg").first.wait_for()
    page.locator(".maps svg").first.focus()
    caption = page.locator(".caption").first
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    playwright.expect(caption).to_contain_text("“house” ← “Haus”")
    page.keyboard.press("Enter")
    playwright.expect(page.locator(".next h3")).to_contain_text("the")
    page.get_by_role("tab", name="Align a pair").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")  # the sentence comes along and is translated at once
    words = page.locator(".words.source .word")
    playwright.expect(words).to_have_text(SOURCE.split())
    words.first.focus()
    page.keyboard.press("ArrowRight")
    playwright.expect(words.nth(1)).to_be_focused()
    playwright.expect(page.locator(".caption")).to_contain_text("“Haus”")


def test_sixty_words_on_a_phone(visit):
    page = visit(view="pair", source=LONG, target=LONG, width=390, height=800, scheme="dark")
    page.locator(".maps svg").nth(1).wait_for()
    assert page.locator(".maps svg").first.locator(".cell").count() == 3600
    assert page.evaluate("document.documentElement.scrollWidth") <= 390  # only the maps scroll sideways
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(243, 245, 248)"


def test_right_to_left_text_runs_right_to_left(visit):
    page = visit(source=HEBREW)
    words = page.locator(".words.source .word")
    words.first.wait_for()
    assert words.all_inner_texts() == HEBREW.split()
    first, last = words.first.bounding_box(), words.last.bounding_box()
    assert first["x"] > last["x"]
    drawn = page.locator("svg text", has_text=re.compile("[א-ת]"))
    assert drawn.first.bounding_box()["x"] > drawn.last.bounding_box()["x"]
    words.first.focus()
    page.keyboard.press("ArrowLeft")
    playwright.expect(words.nth(1)).to_be_focused()


def test_text_is_shown_and_never_run(visit):
    page = visit(view="pair", source=ATTACK, target=ATTACK)
    page.locator(".maps svg").first.wait_for()
    assert page.locator(".maps svg text", has_text="<script>hacked").count() >= 1
    assert page.evaluate("window.hacked") is None
    page = visit(view="translate", source=ATTACK)
    page.locator(".words.source .word").first.wait_for()
    assert page.locator(".words.source").inner_text().split() == ATTACK.split()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src=x]").count() == 0


def test_mistakes_are_told_kindly(visit):
    page = visit(source="zu lang " * 300)
    alert = page.get_by_role("alert")
    playwright.expect(alert).to_contain_text("the limit of this server is 2000")
    assert page.get_by_role("button", name="Try again").count() == 1
    page.get_by_label("Sentence").fill("")
    page.get_by_role("button", name="Translate").click()
    playwright.expect(page.locator(".hint")).to_contain_text("Type a sentence first")
    page.route("**/api/translate", lambda route: route.abort())
    page.get_by_label("Sentence").fill("ja")
    page.get_by_role("button", name="Translate").click()
    playwright.expect(alert).to_contain_text("does not answer")
    page.unroute("**/api/translate")
    page.get_by_role("button", name="Try again").click()
    page.locator(".words.target").wait_for()


def test_light_and_dark_by_choice(visit):
    page = visit()
    paper = "getComputedStyle(document.querySelector('.card')).backgroundColor"
    page.locator(".card").first.wait_for()
    light = page.evaluate(paper)
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(paper) != light
    page.reload()
    page.locator(".card").first.wait_for()
    assert page.evaluate(paper) != light  # remembered


def test_a_story_shows_its_facts_weighted(visit):
    story = "Mary went to the kitchen.\nJohn moved to the garden."
    page = visit(view="ask", run="memory", story=story, question="Where is Mary?")
    facts = page.locator(".facts li:not(.head)")
    facts.first.wait_for()
    assert facts.count() == 2
    assert [facts.nth(n).locator(".weight").count() for n in (0, 1)] == [2, 2]  # a number for every hop
    assert page.locator(".bar-row.answers").count() == 5


def test_an_image_shows_its_regions_weighted(visit):
    page = visit(view="ask", run="vqa", question="What colour is the circle?")
    picture = page.locator(".picture svg")
    picture.first.wait_for()
    assert picture.locator("image").count() == 1
    assert picture.locator("rect[stroke]").count() >= 3
    picture.locator("rect[stroke]").last.hover()
    playwright.expect(page.locator(".picture ~ .caption, .card .caption").last).to_contain_text("region")
    picture.first.focus()
    page.keyboard.press("ArrowDown")  # from the region that counts most to the next
    playwright.expect(picture.first.locator(".cursor")).to_be_visible()
    saved = save(page, "SVG").decode()
    assert 'href="data:image/png;base64,' in saved
    drawn = Image.open(io.BytesIO(save(page, "PNG"))).convert("RGB")
    assert len(drawn.getcolors(maxcolors=2**24)) > 500  # the picture is in it, not only the boxes


def test_the_description_of_the_api_needs_nothing_from_elsewhere(visit):
    page = visit("docs")
    page.locator("table").first.wait_for()
    assert page.get_by_text("/api/translate", exact=True).count() == 1
    assert page.get_by_text("characters ≤ 2000").count() >= 1


def test_an_aligner_aligns_a_pair_and_offers_nothing_else(visit):
    page = visit(view="pair", run="aligner", source=SOURCE, target=TARGET)
    playwright.expect(page.locator(".maps svg")).to_have_count(1)
    playwright.expect(page.locator(".maps figcaption")).to_have_text(
        "how likely each link is, both directions together"
    )
    playwright.expect(page.get_by_text("score per word")).to_be_visible()
    playwright.expect(page.get_by_role("region", name="The next word")).to_have_count(0)
    playwright.expect(page.get_by_label("Beside the prior")).to_have_count(0)
    page.get_by_role("tab", name="Translate").click()  # a run takes over there
    playwright.expect(page.get_by_label("Run").locator("option")).to_have_text(
        ["variational", "soft", "relaxed"]
    )
