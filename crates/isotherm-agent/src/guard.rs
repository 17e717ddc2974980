//! Which requests are answered at all: those of programs, and those of the daemon's own page in a browser.
//!
//! A browser sends requests for any page that it shows. What another site asks is told by `Origin` and
//! `Sec-Fetch-Site`. A site whose name was made to lead here (DNS rebinding) is told by `Host`: only addresses,
//! `localhost` and the names of the configuration are served.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use hyper::http::request::Parts;
use isotherm_core::chain;
use isotherm_input::Input;

use crate::api::{PAGE, Problem};

/// What a browser says of the site that sends a request.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The least and the most characters of a token.
const LEAST: usize = 16;
const MOST: u64 = 4096;

/// Refuses requests for another host, and those of other sites. The page itself has nothing to keep from them: a link
/// may lead to it.
///
/// # Errors
/// Why it is refused.
pub fn check(head: &Parts, names: &[String]) -> Result<(), Problem> {
    let refused = |what: String| Err(Problem::new(403, what));
    let given = text(&head.headers, &HOST).or_else(|| head.uri.authority().map(|authority| authority.as_str()));
    let Some(host) = given else { return refused("the request names no host".into()) };
    if !is_served(host, names) {
        return refused(format!("the host {host:?} is not served; page.hosts in the configuration names further ones"));
    }
    if head.method == "GET" && head.uri.path() == PAGE {
        return Ok(());
    }
    let is_own = |origin: &str| origin.split_once("://").is_some_and(|(_, authority)| authority == host);
    let origin = head.headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let site = head.headers.get(SITE).map(|site| site.to_str().unwrap_or_default());
    if origin.is_some_and(|origin| !is_own(origin)) || site.is_some_and(|site| site != "same-origin" && site != "none")
    {
        return refused("another site asks; only the daemon's own page may".into());
    }
    Ok(())
}

/// Whether requests for this host, with or without a port, are answered.
fn is_served(host: &str, names: &[String]) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// What those who may see the page by TCP know.
pub struct Token(String);

impl Token {
    /// Reads it from a file that only its owner and its group can read.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read(path: &Path) -> io::Result<Self> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()));
        let mode = rustix::fs::stat(path).map_err(|error| wrong(error.to_string()))?.st_mode;
        if mode & 0o007 != 0 {
            return Err(wrong("all users may read or write the token; change its mode to 0600".into()));
        }
        let text = Input::new(path).limited_to(MOST).text().map_err(|error| wrong(chain(&error)))?;
        Self::new(&text).ok_or_else(|| {
            wrong(format!(
                "the token has fewer than {LEAST} characters, or others than \
                                                      letters, digits and signs"
            ))
        })
    }

    fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (text.len() >= LEAST && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(text.into()))
    }

    /// Whether a request has it: `Authorization: Bearer TOKEN`.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let given = text(headers, &AUTHORIZATION).and_then(|value| value.split_once(' '));
        given.is_some_and(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && self.is(token.trim()))
    }

    /// It takes the same time however much is right.
    fn is(&self, token: &str) -> bool {
        let differences = self.0.bytes().zip(token.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
        self.0.len() == token.len() && std::hint::black_box(differences) == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use hyper::Request;

    use super::*;

    fn checked(method: &str, path: &str, headers: &[(&str, &str)]) -> Result<(), u16> {
        let request = headers
            .iter()
            .fold(Request::builder().method(method).uri(path), |request, (name, value)| request.header(*name, *value));
        let (head, ()) = request.body(()).unwrap().into_parts();
        check(&head, &["memory.example.org".into()]).map_err(|problem| problem.status)
    }

    #[test]
    fn only_hosts_that_cannot_be_made_to_lead_here_are_served() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:9754", "[::1]:9754", "10.0.0.7", "Memory.example.org:1"]
        {
            assert_eq!(checked("GET", "/v1/groups", &[("host", host)]), Ok(()), "{host}");
        }
        for host in ["evil.example.org", "localhost.evil.org:9754", "127.0.0.1.evil.org", "", "localhost@evil.org"] {
            assert_eq!(checked("GET", "/", &[("host", host)]), Err(403), "{host}");
        }
        assert_eq!(checked("GET", "/", &[]), Err(403));
    }

    #[test]
    fn what_another_site_asks_is_refused() {
        let with = |name, value| checked("GET", "/v1/groups", &[("host", "localhost:1"), (name, value)]);
        assert_eq!(with("origin", "http://localhost:1"), Ok(()));
        assert_eq!(with("origin", "https://localhost:1"), Ok(()), "a proxy may have spoken TLS");
        for origin in ["http://localhost:2", "http://evil.org", "null", "http://localhost:1.evil.org"] {
            assert_eq!(with("origin", origin), Err(403), "{origin}");
        }
        for (site, expected) in [("same-origin", Ok(())), ("none", Ok(())), ("cross-site", Err(403))] {
            assert_eq!(with("sec-fetch-site", site), expected, "{site}");
        }
        assert_eq!(with("sec-fetch-site", "same-site"), Err(403), "another port is another site");
        let link = [("host", "localhost"), ("sec-fetch-site", "cross-site")];
        assert_eq!((checked("GET", "/", &link), checked("POST", "/", &link)), (Ok(()), Err(403)));
    }

    #[test]
    fn a_token_is_long_and_kept_from_other_users_and_only_the_whole_of_it_counts() {
        assert!(Token::new("short").is_none() && Token::new("a token with spaces").is_none());
        let token = Token::new("0123456789abcdef\n").unwrap();
        let has = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            token.is_in(&headers)
        };
        assert!(has("Bearer 0123456789abcdef") && has("bearer 0123456789abcdef"));
        for wrong in ["Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "0123456789abcdef", "Basic x", "Bearer "] {
            assert!(!has(wrong), "{wrong}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "0123456789abcdef\n").unwrap();
        assert!(Token::read(file.path()).is_ok());
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(file.path(), open).unwrap();
        assert!(Token::read(file.path()).err().is_some_and(|error| error.to_string().contains("0600")));
    }
}
