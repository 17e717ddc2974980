//! A Prometheus for each of two clusters, and one of both: the shipped rules make sums by service of known metrics.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};

use isotherm_agent::api::encoded;
use isotherm_testing::or_skip;
use serde_json::Value;

use crate::common::{Kept, Place, eventually};
use crate::prometheus::{free, get, promtool, shipped};

/// Metrics of a daemon: group, cgroup, namespace, container, bytes in memory and idle bytes.
type Cgroups = &'static [(&'static str, &'static str, &'static str, &'static str, u64, u64)];

/// Two hosts of one cluster, and one of another. Two groups have the container of the first one.
const HOSTS: [Cgroups; 3] = [
    &[
        ("shop", "/kubepods.slice/pod1.slice/cri-1.scope", "shop", "cart", 100, 40),
        ("machine", "/kubepods.slice/pod1.slice/cri-1.scope", "shop", "cart", 100, 40),
        ("machine", "/system.slice/nginx.service/workers", "", "", 7, 1),
        ("machine", "", "", "", 3, 2),
    ],
    &[("shop", "/kubepods.slice/pod9.slice/cri-9.scope", "shop", "cart", 50, 10), ("odd", "/jobs", "", "", 20, 0)],
    &[
        ("machine", "/kubepods.slice/pod1.slice/cri-1.scope", "shop", "cart", 1000, 500),
        ("machine", "/docker/0a1b", "", "alone", 5, 5),
    ],
];

/// What these have in memory and idle by service, and on how many hosts.
const TRUTH: [(&str, u64, u64, u64); 5] = [
    ("alone", 5, 5, 1),
    ("machine", 3, 2, 1),
    ("nginx.service", 7, 1, 1),
    ("odd", 20, 0, 1),
    ("shop/cart", 1150, 550, 3),
];

/// Answers each request with the metrics of a host, until the test ends.
fn daemon(cgroups: Cgroups) -> SocketAddr {
    let mut metrics = "isotherm_process_cpu_seconds_total 1\n".to_owned();
    for (group, cgroup, namespace, container, resident, idle) in cgroups {
        for (state, bytes) in [("resident", resident), ("idle", idle)] {
            metrics += &format!(
                "isotherm_cgroup_memory_bytes{{group=\"{group}\",cgroup=\"{cgroup}\",namespace=\"{namespace}\",\
                 container=\"{container}\",pod=\"\",state=\"{state}\"}} {bytes}\n"
            );
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let Ok(copy) = stream.try_clone() else { return };
            let ends = |line: &Result<String, _>| !line.as_ref().is_ok_and(|line: &String| !line.is_empty());
            BufReader::new(copy).lines().find(ends);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n\r\n";
            _ = stream.write_all(format!("{head}{metrics}").as_bytes());
        }
    });
    address
}

/// Starts a Prometheus with this configuration.
fn prometheus(place: &Place, name: &str, config: &str) -> Result<(Kept, SocketAddr), std::io::Error> {
    let (file, address) = (place.path(&format!("{name}.yml")), free());
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new("prometheus");
    command.arg("--config.file").arg(file).arg("--storage.tsdb.path").arg(place.path(name));
    command.arg(format!("--web.listen-address={address}")).stdout(Stdio::null());
    command.stderr(std::fs::File::create(place.path(&format!("{name}.log"))).unwrap());
    Ok((Kept(command.spawn()?), address))
}

/// A figure by service.
fn by_service(address: SocketAddr, query: &str) -> BTreeMap<String, f64> {
    let Some(body) = get(address, &format!("/api/v1/query?query={}", encoded(query))) else { return BTreeMap::new() };
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["status"], "success", "{query}: {answer}");
    let figure = |series: &Value| {
        let service = series["metric"]["service"].as_str().unwrap_or_default().to_owned();
        (service, series["value"][1].as_str().unwrap().parse().unwrap())
    };
    answer["data"]["result"].as_array().unwrap().iter().map(figure).collect()
}

#[test]
fn the_sums_by_service_of_two_clusters_are_as_they_are_known() {
    let place = Place::new();
    let rules = shipped("prometheus");
    for name in ["isotherm-services.rules.yml", "isotherm-global.rules.yml"] {
        std::fs::copy(rules.join(name), place.path(name)).unwrap();
        let checked = or_skip!(promtool(&["check", "rules", place.path(name).to_str().unwrap()], ""));
        assert!(checked.contains("SUCCESS"), "{checked}");
    }
    let hosts = HOSTS.map(daemon);
    let mut clusters = Vec::new();
    for (name, hosts) in [("east", &hosts[..2]), ("west", &hosts[2..])] {
        let targets: Vec<String> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s, external_labels: {{cluster: {name}}}}}\n\
             rule_files: [isotherm-services.rules.yml]\n\
             scrape_configs: [{{job_name: isotherm, static_configs: [{{targets: [{}]}}]}}]\n",
            targets.join(", ")
        );
        clusters.push(or_skip!(prometheus(&place, name, &config)));
    }
    // What is shipped, with the clusters of the test, and without waiting.
    let config = std::fs::read_to_string(rules.join("prometheus-global.yml")).unwrap();
    let shipped = "\"prometheus.east.example:9090\", \"prometheus.west.example:9090\"";
    assert!(config.contains(shipped) && config.contains(": 30s"), "{config}");
    let here = format!("\"{}\", \"{}\"", clusters[0].1, clusters[1].1);
    let config = config.replace(shipped, &here).replace(": 30s", ": 1s");
    let (_global, global) = or_skip!(prometheus(&place, "global", &config));
    promtool(&["check", "config", place.path("global.yml").to_str().unwrap()], "").unwrap();

    let known = |of: fn(&(&str, u64, u64, u64)) -> u64| -> BTreeMap<String, f64> {
        TRUTH.iter().map(|row| (row.0.to_owned(), of(row) as f64)).collect()
    };
    for (what, query, truth) in [
        ("memory", "fleet_service:isotherm_memory_bytes:sum{state=\"resident\"}", known(|row| row.1)),
        ("idle memory", "fleet_service:isotherm_memory_bytes:sum{state=\"idle\"}", known(|row| row.2)),
        ("hosts", "fleet_service:isotherm_hosts:count", known(|row| row.3)),
        ("all hosts", "fleet:isotherm_hosts:count", BTreeMap::from([(String::new(), 3.0)])),
    ] {
        eventually(&format!("{what} by service is as it is known"), || by_service(global, query) == truth);
    }
    eventually("the idle share is as it is known", || {
        by_service(global, "fleet_service:isotherm_idle:ratio").get("shop/cart") == Some(&(550.0 / 1150.0))
    });
    eventually("all rules were evaluated", || {
        let rules: Value = serde_json::from_str(&get(global, "/api/v1/rules").unwrap()).unwrap();
        let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap().clone();
        assert!(rules.len() == 6 && rules.iter().all(|rule| rule["health"] != "err"), "{rules:?}");
        rules.iter().all(|rule| rule["health"] == "ok")
    });
}
