//! Requests and replies as plain data, independent of the HTTP server's types.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::json_error::{JsonError, from_json_text};

/// The port that a URL with `https` does not name.
pub const HTTPS_PORT: u16 = 443;

/// The initial capacity of a JSON body in bytes: enough for a small secret or resource.
const JSON_BODY_CAPACITY: usize = 1024;

/// How a request was transported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestScheme {
    /// Without TLS: directly at the port, or in the proxy's absolute form.
    Http,
    /// Inside an intercepted TLS tunnel.
    Https,
}

/// A completely read request. `Debug` omits headers, query and body, because they contain tokens and secrets.
#[derive(Clone)]
pub struct ServiceRequest {
    pub method: Method,
    /// The transport.
    pub scheme: RequestScheme,
    /// The requested host, in lower case and without a port.
    pub host: String,
    /// The port in the URL that the client requested.
    pub port: u16,
    /// The address of the client, if it is known.
    pub client_ip: Option<IpAddr>,
    /// The path in its encoded form, with single slashes and no trailing slash; `/` for the root. At hosts of
    /// the Blob service, every slash is part of a name, and the path is as sent.
    pub path: String,
    /// The decoded pairs of the query, in order.
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl ServiceRequest {
    /// The request of a tunnel to a host.
    pub fn connect(host: &str, port: u16) -> Self {
        Self {
            method: Method::CONNECT,
            scheme: RequestScheme::Http,
            host: host.to_owned(),
            port,
            client_ip: None,
            path: String::new(),
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    /// The `https` origin with the host and the port that the client requested.
    pub fn origin(&self) -> String {
        https_origin(&self.host, self.port)
    }

    /// The first value of a header, if it is visible text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The first value of a query parameter; names are case-insensitive, as in Azure.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value.as_str()))
    }

    /// The decoded segments of the path.
    pub fn segments(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(|segment| percent_decode_str(segment).decode_utf8_lossy())
    }

    /// The body as JSON.
    ///
    /// # Errors
    ///
    /// Returns an error that repeats nothing of the body.
    pub fn parse_json_body<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        from_json_text(&self.body)
    }

    /// The pairs of a form body.
    pub fn parse_form_body(&self) -> Vec<(String, String)> {
        url::form_urlencoded::parse(&self.body).into_owned().collect()
    }
}

impl fmt::Debug for ServiceRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Request")
            .field("method", &self.method)
            .field("host", &self.host)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// A complete reply. `Debug` omits headers and body.
#[derive(Clone)]
pub struct ServiceReply {
    pub status: StatusCode,
    /// The headers of the service; the engine adds those of `ServiceHeaders`. Boxed, because handlers also return
    /// replies as errors, and large errors are slow to pass on.
    pub headers: Box<HeaderMap>,
    pub body: Bytes,
    /// The reason of a rejection, for the request log. Never contains a secret.
    pub rejection_reason: Option<String>,
}

impl fmt::Debug for ServiceReply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Reply")
            .field("status", &self.status)
            .field("reason", &self.rejection_reason)
            .finish_non_exhaustive()
    }
}

impl ServiceReply {
    /// The first value of a header, if it is visible text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// A reply without a body.
    pub fn empty(status: StatusCode) -> Self {
        Self { status, headers: Box::default(), body: Bytes::new(), rejection_reason: None }
    }

    /// A reply with a JSON body.
    pub fn json(status: StatusCode, body: &impl Serialize) -> Self {
        let mut text = Vec::with_capacity(JSON_BODY_CAPACITY);
        match serde_json::to_writer(&mut text, body) {
            Ok(()) => Self::empty(status).with_body("application/json; charset=utf-8", text),
            Err(error) => Self::text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the emulator could not write its reply: {error}"),
            )
            .with_rejection_reason("reply not serializable"),
        }
    }

    /// A reply with a plain text body.
    pub fn text(status: StatusCode, body: impl Into<String>) -> Self {
        Self::empty(status).with_body("text/plain; charset=utf-8", body.into())
    }

    /// Replaces the body and its content type.
    #[must_use]
    pub fn with_body(mut self, kind: &'static str, body: impl Into<Bytes>) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        self.body = body.into();
        self
    }

    /// Adds a header; a value that is not valid in a header is omitted.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.append(HeaderName::from_static(name), value);
        }
        self
    }

    /// Sets the rejection reason for the request log: a code or a short text, never a credential of the
    /// client.
    #[must_use]
    pub fn with_rejection_reason(mut self, reason: impl Into<String>) -> Self {
        self.rejection_reason = Some(reason.into());
        self
    }
}

/// `https://`, the host, and the port unless it is 443.
pub(crate) fn https_origin(host: &str, port: u16) -> String {
    if port == HTTPS_PORT { format!("https://{host}") } else { format!("https://{host}:{port}") }
}

/// Normalizes a path to single slashes without a trailing slash: JavaScript clients double slashes, and after
/// a redirect several clients would drop their `Authorization` header.
pub(crate) fn normalize_path(path: &str) -> String {
    let mut normal = String::with_capacity(path.len());
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        normal.push('/');
        normal.push_str(segment);
    }
    if normal.is_empty() {
        normal.push('/');
    }
    normal
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn doubled_and_trailing_slashes_are_removed() {
        let cases = [
            ("", "/"),
            ("//", "/"),
            ("//subscriptions//s/", "/subscriptions/s"),
            ("/secrets/name/", "/secrets/name"),
            ("/a%2Fb", "/a%2Fb"),
        ];
        for (path, expected) in cases {
            assert_eq!(normalize_path(path), expected, "{path}");
        }
    }

    #[test]
    fn replacing_the_body_replaces_its_content_type_and_no_other_header() {
        let reply = ServiceReply::text(StatusCode::OK, "old")
            .with_header("set-cookie", "a=1")
            .with_header("set-cookie", "b=2")
            .with_body("text/html", "new");
        let values = |name| reply.headers.get_all(name).iter().collect::<Vec<_>>();
        assert_eq!(values("content-type"), ["text/html"]);
        assert_eq!(values("set-cookie"), ["a=1", "b=2"]);
        assert_eq!(reply.header("set-cookie"), Some("a=1"));
    }

    #[test]
    fn invalid_header_value_is_omitted() {
        let reply = ServiceReply::empty(StatusCode::OK).with_header("x-a", "b\r\nset-cookie: c");
        assert!(reply.headers.is_empty());
    }

    proptest! {
        #[test]
        fn path_normalization_is_idempotent(path in "[a-z/%0-9.]{0,40}") {
            let normal = normalize_path(&path);
            prop_assert!(!normal.contains("//"));
            prop_assert_eq!(normalize_path(&normal), normal);
        }
    }
}
