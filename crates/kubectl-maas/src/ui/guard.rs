//! Access to the page's server: only the page of this run, in a browser on this machine.
//!
//! Listening on loopback keeps other machines out, but not other users of this one, and not the pages of other sites,
//! from which a browser permits requests to loopback. So every request carries a token of this run, names this server
//! as its host (a name that somebody's DNS resolves to loopback is another host), and comes from its own page.

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

/// What a request must present.
#[derive(Clone)]
pub(super) struct Guard {
    token: SecretString,
    address: SocketAddr,
}

impl Guard {
    /// A new token for a server that listens here.
    pub(super) fn new(address: SocketAddr) -> Self {
        let token = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
        Self { token: token.into(), address }
    }

    /// The URL of the page. Whoever has it can read what the page shows.
    pub(super) fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token.expose_secret())
    }

    /// The names of this server: its own address, and those by which a forwarded port is reached.
    fn is_named(&self, host: &str) -> bool {
        let names = ["127.0.0.1", "[::1]", "localhost"].map(|name| format!("{name}:{}", self.address.port()));
        names.iter().any(|name| name == host) || self.address.to_string() == host
    }

    /// The reason to refuse a request.
    fn judge(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
    ) -> Result<(), (StatusCode, &'static str)> {
        let value = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let host = value(header::HOST).unwrap_or_default();
        if !self.is_named(host) {
            return Err((StatusCode::MISDIRECTED_REQUEST, "this server answers for loopback only"));
        }
        if value(header::ORIGIN).is_some_and(|origin| origin != format!("http://{host}")) {
            return Err((StatusCode::FORBIDDEN, "requests of other sites are refused"));
        }
        let site = value(HeaderName::from_static("sec-fetch-site"));
        // A link may open the page in its own tab; no other site can embed it in a frame.
        let opens_page = path == "/" && value(HeaderName::from_static("sec-fetch-dest")) == Some("document");
        if site.is_some_and(|site| site != "same-origin" && !opens_page) {
            return Err((StatusCode::FORBIDDEN, "requests of other sites are refused"));
        }
        if method != Method::GET {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "this server is read-only"));
        }
        // The page is opened by its URL; its own requests carry the token in a header, which no log and no history
        // keeps.
        let of_address = query.split('&').find_map(|pair| pair.strip_prefix("token=")).filter(|_| path == "/");
        let of_header = value(header::AUTHORIZATION).and_then(|text| text.strip_prefix("Bearer "));
        let given = of_header.or(of_address).unwrap_or_default();
        if !bool::from(given.as_bytes().ct_eq(self.token.expose_secret().as_bytes())) {
            return Err((
                StatusCode::UNAUTHORIZED,
                "open the URL that kubectl maas ui printed; it is valid for one run",
            ));
        }
        Ok(())
    }
}

/// Refuses what the guard refuses, and makes the browser apply strict policies to the response.
pub(super) async fn guarded(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let uri = request.uri();
    let verdict = guard.judge(request.method(), uri.path(), uri.query().unwrap_or_default(), request.headers());
    let mut response = match verdict {
        Ok(()) => next.run(request).await,
        Err((status, why)) => (status, format!("{why}\n")).into_response(),
    };
    for (name, value) in [
        ("cache-control", "no-store"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
    ] {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard_at(address: &str) -> Guard {
        Guard::new(address.parse().unwrap())
    }

    fn judged(guard: &Guard, path: &str, query: &str, headers: &[(&'static str, &str)]) -> Result<(), StatusCode> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        guard.judge(&Method::GET, path, query, &map).map_err(|(status, _)| status)
    }

    #[test]
    fn only_the_page_of_this_run_gets_an_answer() {
        let guard = guard_at("127.0.0.1:8080");
        let token = guard.token.expose_secret().to_owned();
        let (bearer, query) = (format!("Bearer {token}"), format!("token={token}"));
        let host = ("host", "127.0.0.1:8080");
        assert_eq!(token.len(), 64);
        assert_ne!(token, guard_at("127.0.0.1:8080").token.expose_secret());
        assert_eq!(judged(&guard, "/", &query, &[host]), Ok(()));
        assert_eq!(judged(&guard, "/live", "", &[host, ("authorization", &bearer)]), Ok(()));
        for name in ["localhost:8080", "[::1]:8080"] {
            assert_eq!(judged(&guard, "/", &query, &[("host", name)]), Ok(()), "{name}");
        }
        let refused = [
            (judged(&guard, "/", "", &[host]), StatusCode::UNAUTHORIZED),
            (judged(&guard, "/", "token=", &[host]), StatusCode::UNAUTHORIZED),
            (judged(&guard, "/", &query.replace(&token[..2], "zz"), &[host]), StatusCode::UNAUTHORIZED),
            (judged(&guard, "/live", &query, &[host]), StatusCode::UNAUTHORIZED),
            (judged(&guard, "/", &query, &[]), StatusCode::MISDIRECTED_REQUEST),
            (judged(&guard, "/", &query, &[("host", "127.0.0.1")]), StatusCode::MISDIRECTED_REQUEST),
            (judged(&guard, "/", &query, &[("host", "rebound.example:8080")]), StatusCode::MISDIRECTED_REQUEST),
        ];
        for (index, (answer, status)) in refused.into_iter().enumerate() {
            assert_eq!(answer, Err(status), "{index}");
        }
    }

    #[test]
    fn the_server_answers_for_the_address_that_it_listens_on() {
        for (address, other) in [("127.0.0.2:8080", "127.0.0.3:8080"), ("[::1]:8080", "[::2]:8080")] {
            let guard = guard_at(address);
            let query = format!("token={}", guard.token.expose_secret());
            assert_eq!(guard.url(), format!("http://{address}/?{query}"));
            assert_eq!(judged(&guard, "/", &query, &[("host", address)]), Ok(()));
            assert_eq!(judged(&guard, "/", &query, &[("host", other)]), Err(StatusCode::MISDIRECTED_REQUEST));
        }
    }

    #[test]
    fn no_request_of_another_site_is_answered_even_with_the_token() {
        let guard = guard_at("127.0.0.1:8080");
        let token = guard.token.expose_secret().to_owned();
        let (bearer, query) = (format!("Bearer {token}"), format!("token={token}"));
        let with = |more: (&'static str, &'static str)| {
            judged(&guard, "/live", "", &[("host", "localhost:8080"), ("authorization", &bearer), more])
        };
        for origin in ["http://evil.example", "http://localhost:9090", "null"] {
            assert_eq!(with(("origin", origin)), Err(StatusCode::FORBIDDEN), "{origin}");
        }
        assert_eq!(with(("origin", "http://localhost:8080")), Ok(()));
        for site in ["cross-site", "same-site", "none"] {
            assert_eq!(with(("sec-fetch-site", site)), Err(StatusCode::FORBIDDEN), "{site}");
        }
        let page = |into| {
            let headers = [("host", "localhost:8080"), ("sec-fetch-site", "cross-site"), ("sec-fetch-dest", into)];
            judged(&guard, "/", &query, &headers)
        };
        assert_eq!(page("document"), Ok(()), "a link in a file of the user's opens the page");
        for into in ["iframe", "empty", "script"] {
            assert_eq!(page(into), Err(StatusCode::FORBIDDEN), "{into}");
        }
        let map = HeaderMap::from_iter([
            (header::HOST, HeaderValue::from_static("localhost:8080")),
            (header::AUTHORIZATION, HeaderValue::from_str(&bearer).unwrap()),
        ]);
        let posted = guard.judge(&Method::POST, "/live", "", &map);
        assert_eq!(posted.unwrap_err().0, StatusCode::METHOD_NOT_ALLOWED);
    }
}
