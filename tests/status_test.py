"""The status port as its readers meet it: Prometheus, the page's data, two servers on one machine.

Each test says what holds.
"""

import http.client
import json
import os
import time
import urllib.request

from fernd import Fernd, free_port, run_tests
from prometheus_client.parser import text_string_to_metric_families


def get(port, path, host=None, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read().decode()
    finally:
        connection.close()


def watched(*options):
    port = free_port()
    server = Fernd("--cacheSize", "64M", "--statusPort", str(port), *options)
    server.status = port
    return server


def every_line_of_a_scrape_is_parsed():
    with watched() as server, server.client() as client:
        client.shop['odd "name" \\'].insert_many([{"_id": i, "pad": "x" * 500} for i in range(5000)])
        list(client.shop['odd "name" \\'].find())
        client.admin.command("checkpoint")
        status, headers, text = get(server.status, "/metrics")
        assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
        families = {family.name: family for family in text_string_to_metric_families(text)}
        samples = sum(len(family.samples) for family in families.values())
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert samples == len(lines), f"{samples} of {len(lines)} lines"
        for family in families.values():
            assert family.documentation and family.type in ("counter", "gauge", "histogram"), family
            assert family.name.startswith(("fern_", "process_")), family.name
            for sample in family.samples:
                if family.type == "counter":
                    assert sample.name.endswith("_total"), sample
                if sample.name.endswith("_bucket"):
                    assert "le" in sample.labels, sample
        def value(family, **labels):
            found = [s.value for s in families[family].samples if s.labels == labels]
            assert len(found) == 1, (family, labels, found)
            return found[0]
        assert value("fern_operations", type="insert") == 5000
        namespace = 'shop.odd "name" \\'
        assert value("fern_collection_operations", ns=namespace, type="insert") >= 1
        assert value("fern_engine_checkpoints") >= 1
        assert value("process_resident_memory_bytes") > 1 << 20
        # A histogram's buckets grow, and the last holds everything.
        buckets = [s for s in families["fern_command_duration_seconds"].samples
                   if s.name.endswith("_bucket") and s.labels["class"] == "writes"]
        counts = [s.value for s in buckets]
        assert counts == sorted(counts) and buckets[-1].labels["le"] == "+Inf"
        # Counters only grow from scrape to scrape.
        again = {(s.name, tuple(s.labels.items())): s.value
                 for family in text_string_to_metric_families(get(server.status, "/metrics")[2])
                 if family.type == "counter" for s in family.samples}
        for family in families.values():
            if family.type == "counter":
                for s in family.samples:
                    assert again[(s.name, tuple(s.labels.items()))] >= s.value, s


def the_port_is_told_and_zero_is_none():
    with watched() as server, server.client() as client:
        parsed = client.admin.command("getCmdLineOpts")["parsed"]
        assert parsed["statusPort"] == server.status, parsed
    with Fernd("--statusPort", "0") as server, server.client() as client:
        assert client.admin.command("getCmdLineOpts")["parsed"]["statusPort"] == 0


def a_port_in_use_is_a_warning_that_names_it():
    with watched() as first:
        with Fernd("--statusPort", str(first.status)) as second, second.client() as client:
            warnings = client.admin.command("getLog", "startupWarnings")["log"]
            told = [line for line in warnings if f"127.0.0.1:{first.status} is already in use" in line]
            assert len(told) == 1, warnings
            assert client.admin.command("getCmdLineOpts")["parsed"]["statusPort"] == 0
            client.a.b.insert_one({})
        assert get(first.status, "/metrics")[0] == 200


def a_configuration_file_may_say_where():
    server, port = Fernd(), free_port()
    path = os.path.join(server.home, "fernd.conf")
    with open(path, "w") as f:
        f.write(f"storage: {{dbPath: {server.dbpath}}}\nnet: {{port: {server.port}}}\n"
                f"statusPort: {port}\nstatusBindIp: 127.0.0.1\n")
    server.command = lambda: [server.binary, "--config", path]
    with server:
        assert get(port, "/")[0] == 200


def strangers_are_refused():
    with watched() as server:
        assert get(server.status, "/api/now", host="evil.example")[0] == 421
        assert get(server.status, "/api/now", host=f"localhost:{server.status}")[0] == 200
        for method in ("POST", "PUT", "DELETE"):
            assert get(server.status, "/", method=method)[0] == 405
        assert get(server.status, "/../../etc/passwd")[0] == 404
        status, headers, _ = get(server.status, "/")
        assert status == 200 and "default-src 'none'" in headers["content-security-policy"]


def seconds(client, name="opcounters.insert"):
    reply = client.admin.command("serverHistory", names=[name])
    return list(zip(reply["times"], reply["series"][name]))


def each_second_is_kept_over_a_restart_and_a_kill():
    with watched() as server:
        with server.client() as client:
            client.a.b.insert_many([{} for _ in range(77)])
            deadline = time.monotonic() + 60
            # two: the first row after a quick restart may stand for the same second as the last one
            while sum(n == 77 for _, n in seconds(client)) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            before = len(seconds(client))
        assert server.stop() == 0
        server.start()
        with server.client() as client:
            rows = seconds(client)
            assert len(rows) >= before and any(n == 77 for _, n in rows), rows
            client.a.b.insert_one({})
            while len(seconds(client)) < before + 14:
                time.sleep(0.2)
            reply = json.loads(get(server.status, "/api/history?names=opcounters.insert&step=1")[2])
            assert reply["series"]["opcounters.insert"][0] is not None
        server.kill()
        server.start()
        with server.client() as client:
            rows = seconds(client)
            assert any(n == 77 for _, n in rows) and any(n == 1 for _, n in rows), rows
            gaps = [(b - a).total_seconds() for (a, _), (b, _) in zip(rows, rows[1:])]
            assert min(gaps) > 0, gaps


def the_data_behind_the_page_is_told():
    with watched() as server, server.client() as client:
        client.shop.orders.insert_many([{"_id": i, "pad": "x" * 200} for i in range(2000)])
        client.shop.orders.create_index("pad")
        reply = json.loads(get(server.status, "/api/collections")[2])
        orders = [one for one in reply["collections"] if one["ns"] == "shop.orders"]
        assert len(orders) == 1 and orders[0]["count"] == 2000 and orders[0]["nindexes"] == 2, reply
        now = json.loads(get(server.status, "/api/now")[2])
        assert now["status"]["opcounters"]["insert"] == 2000
        assert now["waiting"] == [] and isinstance(now["operations"], list)
        assert any("Access control" in line["msg"] for line in now["warnings"])


def many_readers_at_once_are_served():
    with watched() as server:
        connections = [http.client.HTTPConnection("127.0.0.1", server.status, timeout=60)
                       for _ in range(60)]
        for connection in connections:
            connection.request("GET", "/metrics")
        for connection in connections:
            response = connection.getresponse()
            assert response.status == 200 and response.read()
            connection.close()
        url = f"http://127.0.0.1:{server.status}/api/now"
        assert urllib.request.urlopen(url, timeout=20).status == 200


TESTS = [
    every_line_of_a_scrape_is_parsed,
    the_port_is_told_and_zero_is_none,
    a_port_in_use_is_a_warning_that_names_it,
    a_configuration_file_may_say_where,
    strangers_are_refused,
    each_second_is_kept_over_a_restart_and_a_kill,
    the_data_behind_the_page_is_told,
    many_readers_at_once_are_served,
]


if __name__ == "__main__":
    run_tests("status", TESTS)
