"""Scikit-learn's ColumnTransformer as the oracle of the encoding."""

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder

from service.columns.arrow import encode_table
from service.columns.resolving import resolved
from service.columns.schema import ColumnType, DeclaredColumn

COUNT = 400


def mice(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.normal(40, 10, COUNT)
    age[rng.random(COUNT) < 0.2] = np.nan
    return pd.DataFrame(
        {
            "age": age,
            "weight": rng.normal(70, 10, COUNT),
            "strain": rng.choice(["B6", "BALB", "C3H"], COUNT),
            "stage": rng.choice(["I", "II", "III"], COUNT),
            "treated": rng.random(COUNT) < 0.5,
        }
    )


def test_the_encoding_is_that_of_a_column_transformer():
    known, new = mice(0), mice(1)
    new.loc[::7, "strain"] = "wild"  # a level that the sample does not have
    levels = ["I", "II", "III"]
    oracle = ColumnTransformer(
        [
            ("age", SimpleImputer(strategy="median"), ["age"]),
            ("no age", MissingIndicator(features="all"), ["age"]),
            ("weight", "passthrough", ["weight"]),
            ("strain", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["strain"]),
            (
                "stage",
                make_pipeline(OrdinalEncoder(categories=[levels]), MinMaxScaler()),
                ["stage"],
            ),
            ("treated", "passthrough", ["treated"]),
        ]
    )
    expected = oracle.fit(known).transform(new).astype(np.float32)
    declared = [DeclaredColumn(name) for name in ("age", "weight", "strain")]
    stage = DeclaredColumn("stage", ColumnType.ORDINAL, values=[*levels])
    sample = pa.Table.from_pandas(known).to_pylist()
    schema = resolved([*declared, stage, DeclaredColumn("treated")], sample)
    found = encode_table(schema, pa.Table.from_pandas(new))
    strain = list(schema.by_name).index("strain")
    other = schema.starts[strain] + len(schema.columns[strain].values)
    np.testing.assert_array_equal(found[:, other], new["strain"] == "wild")
    np.testing.assert_array_equal(np.delete(found, other, axis=1), expected)
