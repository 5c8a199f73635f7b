"""Requests made up from the API's own description, fitting and not fitting: no error of the server's but 503."""

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from latentalign.inspector.app import build_app
from latentalign.inspector.limits import Limits
from tests.inspector.serving import PATIENCE, serving

CHECKS = [
    status_code_conformance, content_type_conformance, response_schema_conformance, negative_data_rejection
]  # fmt: skip
# what is too large is answered by 413, which schemathesis does not count as a refusal
CONFIG = SchemathesisConfig.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": ["400", "413", "415", "422"]}}}
)
POSTS = ("/api/translate", "/api/align", "/api/score", "/api/next", "/api/answer")
# small, so that thousands of requests take minutes and their limits are met often
LIMITS = Limits(characters=30, sentences=3, beam=3, pieces=40, samples=5, top=10, seconds=60)


@pytest.fixture(scope="module")
def fuzzed(runs):
    with serving(build_app(runs, limits=LIMITS)) as site:
        yield site


def fuzz(site, path, mode, *, examples):
    described = schemathesis.openapi.from_dict(site.app.openapi(), config=CONFIG)
    operation = described[path]["POST"]
    answers: dict[int, int] = {}

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        answer = case.call(base_url=site.address.rstrip("/"), session=session, timeout=PATIENCE)
        answers[answer.status_code] = answers.get(answer.status_code, 0) + 1
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        assert "Traceback" not in answer.text
        case.validate_response(answer, checks=CHECKS)

    with requests.Session() as session:
        check()
    return answers


@pytest.mark.parametrize("path", POSTS)
def test_some_made_up_requests(fuzzed, path):
    fitting = fuzz(fuzzed, path, GenerationMode.POSITIVE, examples=6)
    assert set(fitting) <= {200, 413, 422}
    fuzz(fuzzed, path, GenerationMode.NEGATIVE, examples=6)
    assert fuzzed.client.get("healthz").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("path", POSTS)
def test_thousands_of_made_up_requests(fuzzed, path):
    fitting = fuzz(fuzzed, path, GenerationMode.POSITIVE, examples=600)
    assert fitting.get(200, 0) > 20 or path == "/api/answer"  # something got through to the models
    fuzz(fuzzed, path, GenerationMode.NEGATIVE, examples=600)
    assert fuzzed.client.get("healthz").json()["waiting"] == 0
