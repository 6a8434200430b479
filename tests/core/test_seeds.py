import numpy as np

from orchestrator.core.seeds import Seeds, Stream


def test_a_stream_depends_on_seed_purpose_and_key_alone():
    """The order of use does not matter."""
    a, b = Seeds(5), Seeds(5)
    b.stream(Stream.POLICY, 9).standard_normal(100)
    first = a.stream(Stream.MOCK, 1, 2).standard_normal(10)
    assert np.array_equal(first, b.stream(Stream.MOCK, 1, 2).standard_normal(10))
    assert np.array_equal(first, a.spawn(Stream.MOCK, 1, 2).standard_normal(10))


def test_streams_of_other_seeds_purposes_and_keys_differ():
    draws = [
        tuple(Seeds(seed).stream(purpose, *key).random(3))
        for seed in (0, 1)
        for purpose in (Stream.MOCK, Stream.POLICY)
        for key in ((), (0,), (0, 0), (1, 0), (0, 1))
    ]
    assert len(set(draws)) == len(draws)


def test_streams_are_those_of_the_golden_run():
    """A changed stream would change every fingerprint."""
    assert Seeds(7).stream(Stream.MOCK, 1, 2).random(2).tolist() == [
        0.2150218027374724,
        0.5074390425758255,
    ]


def test_tokens_depend_on_seed_key_and_text():
    tokens = {
        Seeds(seed).token(key, text=text)
        for seed in (0, 1)
        for key in (0, 1)
        for text in (b"", b"x")
    }
    assert len(tokens) == 8
    assert all(len(token) == 16 for token in tokens)


def test_neighbouring_streams_are_uncorrelated():
    x = np.array([Seeds(3).stream(Stream.MOCK, i, 0).standard_normal() for i in range(4000)])
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 0.06
    assert abs(x.mean()) < 0.06
    assert abs(x.std() - 1) < 0.05
