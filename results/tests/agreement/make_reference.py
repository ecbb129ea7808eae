"""Writes reference.json: what SciPy says of vectors that `results/src/agreement` is tested with.

Run with SciPy 1.11 or later: `python3 make_reference.py > reference.json`.
"""

import itertools
import json

import numpy as np
from scipy import stats

APART = 4.0


def case(scores, published, strong, seed):
    scores, published, strong = map(np.array, (scores, published, strong))
    u = stats.mannwhitneyu(scores[strong], scores[~strong]).statistic
    pairs = [
        (i, j)
        for i, j in itertools.combinations(range(len(scores)), 2)
        if abs(published[i] - published[j]) >= APART
    ]
    told = [
        (i, j)
        for i, j in pairs
        if (scores[i] - scores[j]) * (published[i] - published[j]) > 0
    ]
    ranks = stats.rankdata(scores)
    bootstrap = stats.bootstrap(
        (scores, published),
        lambda x, y: stats.spearmanr(x, y).statistic,
        paired=True,
        vectorized=False,
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return {
        "scores": scores.tolist(),
        "published": published.tolist(),
        "strong": strong.tolist(),
        "rankdata": ranks.tolist(),
        "spearmanr": float(stats.spearmanr(scores, published).statistic),
        "auc": float(u / (strong.sum() * (~strong).sum())),
        "told_apart": [len(told), len(pairs)],
        "normal_scores": stats.norm.ppf((ranks - 0.375) / (len(ranks) + 0.25)).tolist(),
        "bootstrap": [float(bootstrap.low), float(bootstrap.high)],
    }


def main():
    random = np.random.default_rng(0)
    cases = []
    for seed, count in enumerate((12, 15, 29, 40)):
        strong = np.arange(count) < count // 3
        published = np.where(strong, 84.0, 57.0) + random.normal(0, 2.5, count)
        scores = np.where(strong, 2.0, 0.0) + random.normal(0, 1.5, count)
        # Ties: whole numbers of points in every second case.
        if seed % 2:
            published, scores = published.round(), scores.round()
        cases.append(case(scores, published, strong, seed))
    print(json.dumps(cases, indent=1))


main()
