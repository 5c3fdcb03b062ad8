"""Where records come from if they are not uploaded, and where cohorts go if they are not downloaded.

Each names a place that whoever runs the service has allowed (runtime/places.py), and what to take or leave there.
"""

import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ehr.fields import PlainText

MOST_URLS = 100
Url = Annotated[PlainText, Field(min_length=8, max_length=1000, examples=["s3://hospital-lake/exports/2024/"])]
# of an operator's connection, of a schema of a database, of a group of patients
PlaceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", examples=["warehouse"])]
SchemaName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$", examples=["cdm"])]
FhirId = Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,64}$", examples=["diabetes-registry"])]
ResourceType = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z]{1,63}$", examples=["Condition"])]


class Reference(BaseModel):
    """Refuses what it does not know: an option that is passed over would take or leave something else."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Objects(Reference):
    """Files at `s3://` or `https://` addresses."""

    kind: Literal["objects"]
    urls: list[Url] = Field(
        min_length=1,
        max_length=MOST_URLS,
        description="objects, or folders (ending in `/`): all objects under an `s3://` folder, or what the index page"
        " of an `https://` folder links to",
    )

    @property
    def called(self) -> str:
        """What a dataset of it is called that has no name."""
        return self.urls[0].rstrip("/").rsplit("/", 1)[-1][:200]


class OmopDatabase(Reference):
    """The tables of an OMOP CDM in Postgres; only the columns that are read are asked for."""

    kind: Literal["omop"]
    connection: PlaceName = Field(description="what whoever runs the service calls the database")
    cdm_schema: SchemaName = Field(description="schema of the clinical tables")
    vocabulary_schema: SchemaName | None = Field(None, description="of `concept`; `cdm_schema` if left out")
    cohort_schema: SchemaName | None = Field(None, description="of the table `cohort`; `cdm_schema` if left out")
    cohort_id: int | None = Field(
        None, ge=0, lt=2**63, strict=True, description="only the people of this `cohort_definition_id`"
    )

    @property
    def called(self) -> str:
        return f"{self.connection} {self.cdm_schema}"

    @model_validator(mode="after")
    def _cohort_is_whole(self) -> "OmopDatabase":
        if self.cohort_schema is not None and self.cohort_id is None:
            raise ValueError("cohort_schema says where a cohort is: give its cohort_id too")
        return self

    @property
    def schemas(self) -> dict[str, str]:
        """field -> schema, of all that are read."""
        named = ("cdm_schema", "vocabulary_schema", "cohort_schema")
        return {name: value for name in named if (value := getattr(self, name)) is not None}


class FhirExport(Reference):
    """What a FHIR server exports in bulk (`$export`)."""

    kind: Literal["fhir"]
    server: PlaceName = Field(description="what whoever runs the service calls the server")
    group: FhirId | None = Field(None, description="only the patients of this Group; all patients if left out")
    types: list[ResourceType] | None = Field(
        None, min_length=1, max_length=50, description="resources to export; those that are read if left out"
    )
    since: datetime.datetime | None = Field(None, description="only what changed since then")

    @property
    def called(self) -> str:
        return self.server if self.group is None else f"{self.server} {self.group}"


Source = Annotated[Objects | OmopDatabase | FhirExport, Field(discriminator="kind")]


class ParquetFolder(Reference):
    """Parquet files under an `s3://` folder, in a folder of the cohort's own."""

    kind: Literal["parquet"]
    url: Url = Field(description="the folder, such as `s3://hospital-lake/synthetic/`")
    names: bool = Field(False, description="with what the codes are called, beside them")
    records_per_file: int = Field(1_000_000, ge=1_000, le=100_000_000, strict=True)


class DeltaTable(Reference):
    """A Delta table at an `s3://` address; needs the extra `delta` where workers run."""

    kind: Literal["delta"]
    url: Url = Field(description="of the table, such as `s3://hospital-lake/tables/synthetic/`")
    names: bool = Field(False, description="with what the codes are called, beside them")


class OmopSchema(Reference):
    """Tables of the OMOP CDM 5.4 in a schema of a Postgres database."""

    kind: Literal["omop"]
    connection: PlaceName = Field(description="what whoever runs the service calls the database")
    cdm_schema: SchemaName = Field(description="made if it is not there")
    replace: bool = Field(False, description="drop the tables of an earlier cohort that was written there")


Sink = Annotated[ParquetFolder | DeltaTable | OmopSchema, Field(discriminator="kind")]
