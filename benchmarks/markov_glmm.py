"""What a fit of a judge with memory costs: CPU seconds, and ratios to R's programs where R is there.

Each figure is the lowest of several, on either side. With R and the Debian packages r-cran-lme4 and
r-cran-glmmtmb the same ratings are fitted by glmmTMB and by glmer with nloptwrap and without its
derivative check, which are fair peers; glmer as it comes stops at its cap of evaluations after a
minute, and is none. Each side starts from a table of ratings and ends with the covariance. The packages
are found by name; without them these rows are left out.

Log likelihoods are compared at one node and without a penalty, which is the objective of both programs.
There ours is within 1e-6 of glmmTMB's, and some 1e-3 above that of glmer, whose optimiser stops
earlier. R's `cat` prints seven digits, so what it prints as it comes would be off by up to 5e-4.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from estimators.batches import Sequences
from estimators.markov_inference import bootstrap
from estimators.markov_judge import MarkovJudge, simulate
from estimators.markov_model import MarkovFit, fit_markov_glmm, fit_sequences, warm_start

SIZES = ((30, 160, 0.1), (30, 1000, 0.8), (100, 300, 0.8))

R_FIT = """
d <- read.csv("ratings.csv"); d$item <- factor(d$item); d$batch <- factor(d$batch)
form <- y ~ 0 + item + lag1 + first + (1 | batch)
cost <- function(call) {
  each <- replicate(3, { t <- system.time(m <<- call()); t[["user.self"]] + t[["sys.self"]] })
  c(min(each), format(c(logLik(m)), digits = 12)) }
if (requireNamespace("glmmTMB", quietly = TRUE))
  cat("glmmTMB", cost(function() glmmTMB::glmmTMB(form, d, binomial)), "\\n")
if (requireNamespace("lme4", quietly = TRUE))
  cat("glmer", cost(function() lme4::glmer(form, d, binomial, nAGQ = 1, control = lme4::glmerControl(
    optimizer = "nloptwrap", calc.derivs = FALSE))), "\\n")
"""


def best_s(call: Callable[[], object], n: int = 5) -> float:
    """Lowest CPU time of `n` calls."""
    times = []
    for _ in range(n):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def judge_of(v: int, rng: np.random.Generator) -> MarkovJudge:
    return MarkovJudge(
        theta=rng.normal(0.3, 0.8, v), lags=np.array([-0.4]), starts=np.array([0.6]), sigma=1.0
    )


def ratings(v: int, n: int) -> Sequences:
    rng = np.random.default_rng([3, v, n])
    order = np.argsort(rng.random((n, v)), axis=-1)
    return Sequences(
        items=tuple(range(v)),
        batches=tuple(range(n)),
        order=order,
        state=simulate(judge_of(v, rng), order, rng),
    )


def rows(of: Sequences) -> list[tuple[int, int, int, int]]:
    return [
        (n, s, int(item), int(y))
        for n, (items, said) in enumerate(zip(of.order, of.state, strict=True))
        for s, (item, y) in enumerate(zip(items, said, strict=True))
    ]


def plain_loop(of: MarkovJudge, n: int, rng: np.random.Generator) -> None:
    """Draw one run of n batches, rating by rating."""
    v = len(of.theta)
    for _ in range(n):
        effect, before = float(of.sigma) * rng.standard_normal(), 0.0
        for s, item in enumerate(rng.permutation(v)):
            eta = of.theta[item] + effect + (of.lags[0] * before if s else of.starts[0])
            before = float(rng.random() < 1 / (1 + np.exp(-eta)))


def in_r(fit: MarkovFit) -> dict[str, tuple[float, float]]:
    """Fit the same ratings in R: CPU seconds and log likelihood by program."""
    if shutil.which("Rscript") is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "ratings.csv").open("w", encoding="utf-8", newline="") as file:
            out = csv.writer(file)
            out.writerow(("batch", "item", "y", *fit.data.names))
            for n, i in zip(*np.nonzero(fit.data.shown), strict=True):
                out.writerow((n, i, fit.data.y[n, i], *fit.data.x[n, i]))
        ran = subprocess.run(
            ["Rscript", "-e", R_FIT], cwd=folder, capture_output=True, text=True, check=True
        )
    found = (line.split() for line in ran.stdout.splitlines())
    return {name: (float(seconds), float(loglik)) for name, seconds, loglik in found}


def main() -> None:
    noted: list[tuple[str, str]] = []

    def note(bar: str, figure: str) -> None:
        noted.append((bar, figure))
        print(f"{bar:<82} {figure}", flush=True)

    for v, n, most in SIZES:
        told = rows(ratings(v, n))
        fit_s = best_s(lambda told=told: fit_markov_glmm(told))
        note(f"fit and covariance from ratings, V = {v}, N = {n} <= {most} s CPU", f"{fit_s:.3f} s")
        before = fit_markov_glmm([row for row in told if row[0] < n - 1])
        last = [row for row in told if row[0] == n - 1]
        source = before.source
        warm_s = best_s(lambda before=before, last=last: warm_start(before, last))
        cold_s = best_s(lambda source=source: fit_sequences(source))
        note(
            f"one batch more, by warm start / cold, V = {v}, N = {n} <= .7",
            f"{warm_s / cold_s:.2f}",
        )

    fit = fit_sequences(ratings(30, 150))
    draws_s = best_s(lambda: bootstrap(fit, np.random.default_rng(0)))
    note("bootstrap, 200 one-step draws, V = 30, N = 150 <= .060 s CPU", f"{draws_s:.3f} s")

    for v, n, copies in ((6, 18, 2000), (30, 150, 100)):
        of = judge_of(v, np.random.default_rng(0))

        def at_once(of: MarkovJudge = of, v: int = v, n: int = n, copies: int = copies) -> None:
            rng = np.random.default_rng(1)
            simulate(of, np.argsort(rng.random((copies, n, v)), axis=-1), rng)

        loop_s = best_s(lambda of=of, n=n: plain_loop(of, n, np.random.default_rng(1)), 3)
        ratio = loop_s * copies / best_s(at_once)
        note(f"simulator, a plain loop / vectorised, V = {v}, N = {n} >= 10", f"{ratio:.0f}")

    one = ratings(30, 160)
    fit = fit_sequences(one, penalty=None)
    ours = best_s(lambda: fit_sequences(one, penalty=None))
    laplace = fit_sequences(one, penalty=None, quadrature=1)
    bars = {"glmmTMB": 40, "glmer": 150}
    for name, (seconds, loglik) in in_r(fit).items():
        note(
            f"{name} / fit of 15 nodes, V = 30, N = 160 >= {bars[name]}",
            f"{seconds / ours:.0f} ({seconds:.2f} s; our Laplace likelihood higher by "
            f"{laplace.loglik - loglik:.2g})",
        )
    if path := os.environ.get("MEASURED"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"bar": bar, "figure": figure}) + "\n" for bar, figure in noted
            )


if __name__ == "__main__":
    main()
