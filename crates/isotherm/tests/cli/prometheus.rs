//! A real Prometheus scrapes the daemon, evaluates the rules that are shipped, and answers what the dashboard asks.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use isotherm_agent::api::encoded;
use isotherm_testing::or_skip;
use serde_json::Value;

use crate::common::{self, Kept, Place, eventually};

/// What a dashboard shows only on machines with several memory nodes, or once something was refused or came back.
const NOT_HERE: [&str; 3] = ["isotherm_node_memory_bytes", "isotherm_scheme_refused_bytes_total", "what=\"returned\""];

pub fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file).canonicalize().unwrap()
}

pub fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The body of the answer to a GET request. `None` as long as nobody answers: Prometheus is not ready at once.
pub fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    if head.contains(" 503 ") {
        return None;
    }
    assert!(head.contains(" 200 "), "{path}: {answer}");
    Some(body.into())
}

/// The output of promtool, which finds nothing to complain of.
pub fn promtool(arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new("promtool");
    let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("promtool: {error}"))?;
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    Ok(said)
}

#[test]
fn a_prometheus_scrapes_the_daemon_and_answers_what_rules_and_dashboard_ask() {
    let rules = ["isotherm.rules.yml", "isotherm-services.rules.yml"].map(|name| shipped("prometheus").join(name));
    for rules in &rules {
        let checked = or_skip!(promtool(&["check", "rules", rules.to_str().unwrap()], ""));
        assert!(checked.contains("SUCCESS"), "{checked}");
    }

    let (place, metrics, prometheus) = (Place::new(), free(), free());
    std::fs::write(place.path("hot.toml"), common::HOT_IN_COLD).unwrap();
    let mut command = place.isotherm(&["workload", "hot.toml", "--time", "600s"]);
    let target = Kept(command.stdout(Stdio::null()).spawn().unwrap());
    let config = format!(
        "cpu_budget: 20%\nsocket: {}\nhistory: {{directory: {}}}\nmetrics: {{listen: \"{metrics}\"}}\n\
         groups:\n  - name: a\n    select: {{pid: [{}]}}\n    act: true\n    cgroups_above: 1M\n    \
         schemes: [{{name: cold, access_rate: 0%, age: 1s.., action: cold, quota: {{bytes: 1M, period: 1s}}}}]\n",
        place.path("api.sock").display(),
        place.path("state").display(),
        target.0.id()
    );
    std::fs::write(place.path("isotherm.yaml"), config).unwrap();
    let log = std::fs::File::create(place.path("log")).unwrap();
    let mut command = place.isotherm(&["daemon", "--config", "isotherm.yaml"]);
    let _daemon = Kept(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{}, {}]\n\
         scrape_configs: [{{job_name: isotherm, static_configs: [{{targets: [\"{metrics}\"]}}]}}]\n",
        rules[0].display(),
        rules[1].display()
    );
    std::fs::write(place.path("prometheus.yml"), config).unwrap();
    promtool(&["check", "config", place.path("prometheus.yml").to_str().unwrap()], "").unwrap();
    let mut command = Command::new("prometheus");
    command.arg("--config.file").arg(place.path("prometheus.yml"));
    command.arg("--storage.tsdb.path").arg(place.path("tsdb")).arg(format!("--web.listen-address={prometheus}"));
    let _prometheus = Kept(or_skip!(
        command.stdout(Stdio::null()).stderr(std::fs::File::create(place.path("prometheus.log")).unwrap()).spawn()
    ));

    let ask = |query: &str| -> Vec<Value> {
        let Some(body) = get(prometheus, &format!("/api/v1/query?query={}", encoded(query))) else { return vec![] };
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    };
    let what = "a scheme has acted, and the daemon was scraped since";
    eventually(what, || !ask("rate(isotherm_scheme_bytes_total{what=\"applied\"}[5m]) > 0").is_empty());

    let text = get(metrics, "/metrics?format=text").unwrap();
    assert_eq!(promtool(&["check", "metrics"], &text), Ok(String::new()), "{text}");

    let dashboard = std::fs::read_to_string(shipped("grafana/isotherm.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let queries: Vec<&str> = panels
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(queries.len() > 10, "{queries:?}");
    for query in queries {
        let asked = query.replace("$instance", ".*").replace("$group", ".*");
        if NOT_HERE.iter().any(|part| query.contains(part)) {
            // That it is a right query is all that can be known here.
            ask(&asked);
        } else {
            eventually(&format!("there is an answer to {query}"), || !ask(&asked).is_empty());
        }
    }

    let rules = || -> Value { serde_json::from_str(&get(prometheus, "/api/v1/rules").unwrap()).unwrap() };
    eventually("all rules were evaluated", || {
        let rules = rules();
        let groups = rules["data"]["groups"].as_array().unwrap();
        let all: Vec<_> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
        let failed = all.iter().find(|rule| rule["health"] == "err");
        assert!(failed.is_none(), "{failed:?}");
        all.iter().all(|rule| rule["health"] == "ok")
    });
    eventually("a recorded figure is there", || !ask("group:isotherm_idle:ratio{group=\"a\"} > 0").is_empty());
    eventually("a service has memory", || !ask("service:isotherm_memory_bytes:sum{state=\"resident\"} > 0").is_empty());
    let alerts: Value = serde_json::from_str(&get(prometheus, "/api/v1/alerts").unwrap()).unwrap();
    let firing = alerts["data"]["alerts"].as_array().unwrap().iter().find(|alert| alert["state"] == "firing");
    assert!(firing.is_none(), "all is well: {firing:?}");
}
