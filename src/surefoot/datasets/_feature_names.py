"""Names of the attributes, where the raw files have no header."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ABALONE = _words("length diameter height whole_weight shucked_weight viscera_weight shell_weight")
COVTYPE = (
    *_words("elevation aspect slope horizontal_distance_to_hydrology vertical_distance_to_hydrology"),
    *_words("horizontal_distance_to_roadways hillshade_9am hillshade_noon hillshade_3pm"),
    "horizontal_distance_to_fire_points",
    *(f"wilderness_area_{i}" for i in range(1, 5)),
    *(f"soil_type_{i}" for i in range(1, 41)),
)
ISOLET = tuple(f"f{i}" for i in range(1, 618))
LETTER = _words("x-box y-box width high onpix x-bar y-bar x2bar y2bar xybar x2ybr xy2br x-ege xegvy y-ege yegvx")
MAGIC = _words("fLength fWidth fSize fConc fConc1 fAsym fM3Long fM3Trans fAlpha fDist")
MUSHROOM = _words(
    """cap-shape cap-surface cap-color bruises odor gill-attachment gill-spacing gill-size gill-color stalk-shape
    stalk-root stalk-surface-above-ring stalk-surface-below-ring stalk-color-above-ring stalk-color-below-ring
    veil-type veil-color ring-number ring-type spore-print-color population habitat"""
)
PULSAR = tuple(
    f"{curve}_{moment}" for curve in ("profile", "dm_snr") for moment in ("mean", "std", "kurtosis", "skewness")
)
_SPAM_WORDS = _words(
    """make address all 3d our over remove internet order mail receive will people report addresses free business email
    you credit your font 000 money hp hpl george 650 lab labs telnet 857 data 415 85 technology 1999 parts pm direct cs
    meeting original project re edu table conference"""
)
SPAMBASE = (
    *(f"word_freq_{word}" for word in _SPAM_WORDS),
    *(f"char_freq_{char}" for char in ";([!$#"),
    *(f"capital_run_length_{measure}" for measure in ("average", "longest", "total")),
)
THYROID = _words(
    """age sex on_thyroxine query_on_thyroxine on_antithyroid_medication sick pregnant thyroid_surgery I131_treatment
    query_hypothyroid query_hyperthyroid lithium goitre tumor hypopituitary psych TSH T3 TT4 T4U FTI"""
)
YEAST = _words("mcg gvh alm mit erl pox vac nuc")
