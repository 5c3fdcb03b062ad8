"""A database that swallows what is sent to it, and a queue with rubbish in it."""

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from model_store import migrate
from model_store.database import Database
from model_store.repositories import OwnerRepository
from model_store.timeouts import UNHURRIED, Timeouts
from tests.service.servers import Postgres, wait_until
from tests.service.stand import Stand, long_csv
from worker.contract import ROUTES
from worker.heartbeat import DATABASE_AWAY

SOCKET = ".s.PGSQL.5432"


class Swallower:
    """A port between a client and Postgres: passes everything on until it is told to swallow it."""

    def __init__(self, server: Path) -> None:
        self.server, self.swallows = server, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.port = int(self.listener.getsockname()[1])
        self.passed: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self.server / SOCKET))
            self.passed += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if not self.swallows.is_set():
                    sink.sendall(data)
        except OSError:
            pass
        if not self.swallows.is_set():
            sink.close()

    def close(self) -> None:
        for each in (self.listener, *self.passed):
            each.close()


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_worker_that_cannot_reach_the_database_stops_its_work(stand: Stand) -> None:
    """It does not listen either: its own clock ends it, and another worker has the job."""
    url = make_url(stand.url)
    between = Swallower(Path(str(url.query["host"])))
    behind = url.update_query_dict({"host": "127.0.0.1", "port": str(between.port)}).render_as_string(False)
    cut_off = stand.worker(DATABASE_URL=behind, CANCEL_GRACE_SECONDS="0.5", LEASE_SECONDS="8")
    job_id = stand.ingest(long_csv(), "deaf:60")
    stand.wait(job_id, state="running")
    between.swallows.set()
    wait_until(lambda: "ended by force" in cut_off.log.read_text(), "the end of the work")
    assert stand.job(job_id).state in ("running", "queued")
    stand.worker()
    stand.succeed(job_id)
    assert stand.job(job_id).attempt == 2
    between.close()


def test_statements_and_silence_have_limits(postgres: Postgres) -> None:
    url = postgres.new_database("limits")
    for timeouts, expected in ((Timeouts(statement=7), "7s"), (UNHURRIED, "0")):
        database = Database(url, pooled=False, timeouts=timeouts)
        with database.read_scope() as session:
            assert session.scalar(text("SHOW statement_timeout")) == expected
            assert session.scalar(text("SHOW idle_in_transaction_session_timeout")) == expected
        database.close()
    chosen = make_url(url).update_query_dict({"options": "-c statement_timeout=9000 -c search_path=pg_catalog"})
    database = Database(chosen.render_as_string(hide_password=False), pooled=False)
    with database.read_scope() as session:  # what the address says holds
        assert session.scalar(text("SHOW statement_timeout")) == "9s"
        assert session.scalar(text("SHOW search_path")) == "pg_catalog"
    database.close()
    assert Timeouts(silence=30).connect_args()["tcp_user_timeout"] == 30_000


def test_a_database_that_takes_no_writes_is_away_until_it_does(postgres: Postgres) -> None:
    """As after a failover: reads go on, writes wait as if nobody answered, and need no new start afterwards."""
    url = postgres.new_database("failover")
    migrate.upgrade(url)
    database, operator = Database(url), Database(url, pooled=False)

    def switch(value: str) -> None:
        with operator.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"ALTER DATABASE failover SET default_transaction_read_only = {value}"))

    def submit() -> None:
        with database.session_scope() as session:
            OwnerRepository(session).locked("ada")

    submit()  # a connection of before is in the pool
    switch("on")
    database.engine.dispose()  # the failover ends all connections
    with pytest.raises(DATABASE_AWAY):
        submit()
    with database.read_scope() as session:
        assert session.scalar(text("SELECT 1")) == 1
    with operator.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("SET default_transaction_read_only = off"))
        connection.execute(text("ALTER DATABASE failover RESET default_transaction_read_only"))
    _until_written(submit, tries=3)
    for each in (database, operator):
        each.close()


def _until_written(write: Callable[[], None], tries: int) -> None:
    for left in reversed(range(tries)):
        try:
            write()
            return
        except DATABASE_AWAY:
            if left == 0:
                raise


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_rubbish_in_a_queue_is_dropped_and_not_quoted(stand: Stand) -> None:
    client, secret = stand.valkey.client(), "Patient-Zero"
    headers = {"task": ROUTES["ingest"][0], "id": "1"}
    info = {"delivery_tag": "t", "delivery_info": {}}
    for rubbish in (
        secret.encode(),
        b"\xff\xfe",
        json.dumps([secret]).encode(),
        json.dumps({"body": secret, "headers": {}, "properties": {}}).encode(),
        json.dumps({"body": secret, "headers": {"task": secret}, "properties": info}).encode(),
        json.dumps({"body": json.dumps([[secret], {}, {}]), "headers": headers, "properties": info}).encode(),
    ):
        client.rpush("ingest", rubbish)  # the end that is taken first
    worker = stand.worker()
    stand.succeed(stand.ingest(long_csv()))
    assert worker.process.poll() is None and client.llen("ingest") == 0
    log = worker.log.read_text()
    assert log.count("was dropped from a queue") == 6 and secret not in log and "Traceback" not in log
