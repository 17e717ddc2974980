//! Clients that mean no good: each is bounded, and others are served all the same.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use super::Running;
use crate::common::eventually;

/// Resident memory of the daemon.
fn resident(running: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.daemon.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// What the daemon answers to bytes, until it closes the connection.
fn answered(mut stream: UnixStream, bytes: impl IntoIterator<Item = Vec<u8>>) -> String {
    for part in bytes {
        // The daemon may close the connection before all is written.
        if stream.write_all(&part).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    // A connection that is closed with bytes unread is reset.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn clients_that_never_read_send_garbage_or_a_gigabyte_harm_nobody() {
    let running = Running::new("");
    let connect = || UnixStream::connect(running.place.path("api.sock")).unwrap();
    let before = resident(&running);

    let garbage = answered(connect(), [vec![0xfe; 64 << 10], b"\r\n\r\n".to_vec()]);
    assert!(garbage.is_empty() || garbage.starts_with("HTTP/1.1 400"), "{garbage}");
    let log = || running.place.text("log");
    eventually("garbage is logged", || log().contains("was given up: "));

    let mib = vec![b' '; 1 << 20];
    let length = 1_u64 << 30;
    let head = format!("POST /v1/groups HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    let gigabyte = std::iter::once(head.into_bytes()).chain((0..1024).map(|_| mib.clone()));
    let refused = answered(connect(), gigabyte);
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 413"), "{refused}");
    let chunk = [b"100000\r\n".to_vec(), mib.clone(), b"\r\n".to_vec()].concat();
    let head = "POST /v1/groups HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    let endless = std::iter::once(head.as_bytes().to_vec()).chain((0..1024).map(|_| chunk.clone()));
    let refused = answered(connect(), endless);
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 413"), "{refused}");
    let long = [b"GET /".to_vec(), vec![b'a'; 1 << 20], b" HTTP/1.1\r\n\r\n".to_vec()];
    let refused = answered(connect(), long);
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 4"), "{refused}");

    // Streams that nobody reads, and heads that do not end.
    let stream_of_a = "GET /v1/groups/a/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let silent: Vec<UnixStream> = (0..40)
        .map(|nth| {
            let mut stream = connect();
            stream.write_all(if nth % 2 == 0 { stream_of_a.as_bytes() } else { b"GET /v1/gro" }).unwrap();
            stream
        })
        .collect();
    let snapshot = || running.get("/v1/groups/a/snapshot")["time_ns"].as_u64();
    let (first, mut seen) = (snapshot(), 0);
    eventually("the group goes on", || {
        seen += 1;
        assert_eq!(running.said(&["health"]), "all is well\n");
        snapshot() > first.map(|time| time + 3_000_000_000)
    });
    let grown = resident(&running).saturating_sub(before);
    assert!(seen > 3 && grown < 64 << 20, "{grown} bytes more");
    drop(silent);
    running.end();
}

/// A connection on which a stream of the group was asked for, and the head of the answer.
fn follow(running: &Running, path: &str) -> (BufReader<UnixStream>, String) {
    let mut stream = BufReader::new(UnixStream::connect(running.place.path("api.sock")).unwrap());
    write!(stream.get_mut(), "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
    }
    (stream, head.to_ascii_lowercase())
}

#[test]
fn streams_leave_room_for_requests_and_more_than_there_may_be_are_refused() {
    const MOST: usize = 128;
    let running = Running::new("");
    let paths = ["/v1/groups/a/events", "/v1/groups/a/recording", "/v1/overview/events"];
    let mut open: Vec<_> = paths.iter().cycle().take(MOST).map(|path| follow(&running, path)).collect();
    for (_, head) in &open {
        assert!(head.starts_with("http/1.1 200"), "{head}");
    }
    for path in paths {
        let (mut stream, head) = follow(&running, path);
        assert!(head.starts_with("http/1.1 503") && head.contains("\r\nretry-after: 5\r\n"), "{head}");
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&problem["status"], &problem["title"]), (&503.into(), &"Service Unavailable".into()));
        assert!(problem["detail"].as_str().unwrap().contains("128 streams are open"), "{problem}");
    }
    // Those that are open go on, and requests are answered.
    let mut event = String::new();
    while !event.starts_with("data: ") {
        event.clear();
        open[0].0.read_line(&mut event).unwrap();
    }
    assert!(running.said(&["status"]).starts_with("a  watching"));
    eventually("metrics tell how many there are", || running.said(&["metrics"]).contains("isotherm_streams{} 128"));
    let refused = running.ctl(&["stream", "a", "--count", "1"]);
    assert!(refused.status == 1 && refused.err.contains("128 streams are open"), "{refused:?}");
    // One that ends makes room.
    open.pop();
    eventually("there is room again", || running.ctl(&["stream", "a", "--count", "1"]).status == 0);
    drop(open);
    running.end();
}
