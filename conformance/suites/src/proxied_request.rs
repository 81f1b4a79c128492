//! A recorded request, and the fields in which two requests can differ.
//!
//! Values that differ in every run (ids, times, tokens) are replaced by placeholders. A name in place of an
//! id, or another lifetime, still shows as a difference.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value};
use url::Url;
use uuid::Uuid;

/// A request as the client sent it.
#[derive(Clone)]
pub(crate) struct ProxiedRequest {
    pub(crate) method: String,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// Omits headers and body, which contain tokens and assertions.
impl fmt::Debug for ProxiedRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ProxiedRequest")
            .field("method", &self.method)
            .field("url", &self.url.as_str())
            .finish_non_exhaustive()
    }
}

/// The fields of a request by name.
pub(crate) type RequestFields = BTreeMap<String, String>;

/// The inputs of both sides, each with its name in the comparison.
#[derive(Clone, Default)]
pub(crate) struct InputNames(Vec<(String, &'static str)>);

impl InputNames {
    pub(crate) fn new(inputs: impl IntoIterator<Item = (String, &'static str)>) -> Self {
        Self(inputs.into_iter().filter(|(value, _)| !value.is_empty()).collect())
    }

    /// The text with every input replaced by its name.
    fn replace_inputs(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (value, name)| text.replace(value, name))
    }
}

impl ProxiedRequest {
    /// The key that pairs a request with its counterpart: method, host and path.
    pub(crate) fn pairing_key(&self, known: &InputNames) -> String {
        let host = self.url.host_str().unwrap_or_default();
        known.replace_inputs(&format!("{} {host}{}", self.method, self.url.path()))
    }

    /// Every field of the request.
    pub(crate) fn fields(&self, known: &InputNames) -> RequestFields {
        let constant = |value: &str| normalize_value(&known.replace_inputs(value));
        let mut fields = RequestFields::new();
        fields.insert("scheme".to_owned(), self.url.scheme().to_owned());
        for (name, value) in self.url.query_pairs() {
            fields.insert(format!("query.{name}"), constant(&value));
        }
        for (name, value) in &self.headers {
            let name = name.to_ascii_lowercase();
            // The HTTP stack sets the connection headers, and the length follows from the body.
            if !matches!(name.as_str(), "host" | "content-length" | "connection") {
                fields.insert(format!("header.{name}"), constant(&normalize_header(&name, value)));
            }
        }
        for (name, value) in url::form_urlencoded::parse(&self.body) {
            if name == "client_assertion" {
                describe_assertion(&value, known, &mut fields);
            } else if !name.is_empty() {
                fields.insert(format!("form.{name}"), constant(&value));
            }
        }
        fields
    }
}

fn normalize_header(name: &str, value: &str) -> String {
    match name {
        "authorization" => {
            let scheme = value.split_once(' ').map_or(value, |(scheme, _)| scheme);
            format!("{scheme} <token>")
        }
        // Product and version change with every release of either side.
        "user-agent" => "<product>".to_owned(),
        "accept-encoding" => "<codings of the HTTP stack>".to_owned(),
        _ => value.to_owned(),
    }
}

/// The value, or a placeholder for a random one.
fn normalize_value(value: &str) -> String {
    let value = value.trim();
    // An id that is not an input was generated for this request.
    if Uuid::try_parse(value).is_ok() {
        return "<random uuid>".to_owned();
    }
    value.to_owned()
}

/// Describes header and claims of a client assertion, with times relative to `nbf`.
///
/// An assertion of another issuer (a federated token) is passed on unchanged, so it is compared as a whole.
fn describe_assertion(assertion: &str, known: &InputNames, fields: &mut RequestFields) {
    let named = known.replace_inputs(assertion);
    if named != assertion {
        fields.insert("form.client_assertion".to_owned(), named);
        return;
    }
    let mut parts = assertion.split('.');
    let mut object = || -> Option<Map<String, Value>> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok()
    };
    let (Some(header), Some(claims)) = (object(), object()) else {
        fields.insert("form.client_assertion".to_owned(), "<unreadable>".to_owned());
        return;
    };
    for (name, value) in &header {
        let key = format!("assertion.header.{name}");
        match (name.as_str(), value) {
            ("x5c", Value::Array(chain)) => {
                fields.insert(format!("{key}.content"), content_digest(chain));
                fields.insert(
                    key,
                    chain.iter().map(certificate_encoding).collect::<Vec<_>>().join(", "),
                );
            }
            ("x5t" | "x5t#S256", Value::String(thumbprint)) => {
                let bytes = decode_thumbprint(thumbprint);
                fields.insert(format!("{key}.content"), content_digest(&bytes));
                fields.insert(key, thumbprint_encoding(thumbprint, bytes.len()));
            }
            _ => {
                fields.insert(key, value_text(value));
            }
        }
    }
    let not_before = claims.get("nbf").and_then(Value::as_i64);
    for (name, value) in &claims {
        let described = match (name.as_str(), value.as_i64(), not_before) {
            ("nbf" | "iat", Some(_), _) => "<time>".to_owned(),
            ("exp", Some(end), Some(begin)) => format!("nbf + {} s", end - begin),
            _ => normalize_value(&known.replace_inputs(&value_text(value))),
        };
        fields.insert(format!("assertion.claims.{name}"), described);
    }
}

fn certificate_encoding(entry: &Value) -> &'static str {
    match entry.as_str().map(|text| STANDARD.decode(text)) {
        Some(Ok(der)) if der.starts_with(&[0x30, 0x82]) => "base64 of DER",
        Some(Ok(_)) => "base64 of something else",
        _ => "not base64",
    }
}

fn thumbprint_encoding(text: &str, bytes: usize) -> String {
    let padding = if text.ends_with('=') { "with" } else { "without" };
    format!("{bytes} bytes, {padding} padding")
}

fn decode_thumbprint(text: &str) -> Vec<u8> {
    let text = text.trim_end_matches('=').replace('+', "-").replace('/', "_");
    URL_SAFE_NO_PAD.decode(text).unwrap_or_default()
}

/// A digest for comparing contents without storing them.
fn content_digest(content: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxied_request(url: &str, headers: &[(&str, &str)], body: &str) -> ProxiedRequest {
        ProxiedRequest {
            method: "POST".to_owned(),
            url: url.parse().expect("the URL is well formed"),
            headers: headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            body: body.as_bytes().to_vec(),
        }
    }

    fn assertion(header: &str, claims: &str) -> String {
        format!("{}.{}.c2ln", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn values_that_vary_per_run_are_normalized() {
        let fields = proxied_request(
            "https://vault.azure.net/secrets/a?api-version=7.5",
            &[
                ("Authorization", "Bearer eyJhbGciOi"),
                ("X-Ms-Client-Request-Id", "3f2c1c56-3d5b-4f6e-9c55-6a5e4f3d2c1b"),
                ("User-Agent", "azsdk-go/1"),
                ("Content-Length", "0"),
            ],
            "",
        )
        .fields(&InputNames::default());
        assert_eq!(fields["header.authorization"], "Bearer <token>");
        assert_eq!(fields["header.x-ms-client-request-id"], "<random uuid>");
        assert_eq!(fields["header.user-agent"], "<product>");
        assert_eq!(fields["query.api-version"], "7.5");
        assert!(!fields.contains_key("header.content-length"));
    }

    #[test]
    fn a_recorded_request_prints_neither_token_nor_body() {
        let headers = [("Authorization", "Bearer marker")];
        let exchange =
            proxied_request("https://vault.azure.net/", &headers, "client_secret=marker");
        assert!(!format!("{exchange:?}").contains("marker"));
    }

    #[test]
    fn inputs_are_replaced_by_names_in_every_field() {
        let tenant = "3f2c1c56-3d5b-4f6e-9c55-6a5e4f3d2c1b";
        let known = InputNames::new([(tenant.to_owned(), "<tenant>")]);
        let exchange =
            proxied_request(&format!("https://login.example/{tenant}/token?a={tenant}"), &[], "");
        assert_eq!(exchange.pairing_key(&known), "POST login.example/<tenant>/token");
        assert_eq!(exchange.fields(&known)["query.a"], "<tenant>");
    }

    #[test]
    fn an_assertion_is_compared_by_header_and_claims() {
        let jwt = assertion(
            r#"{"alg":"PS256","x5t#S256":"+AAA","x5c":["MIIBAA==","LS0tLS1C"]}"#,
            r#"{"nbf":1000,"exp":1600,"iss":"client","jti":"3f2c1c56-3d5b-4f6e-9c55-6a5e4f3d2c1b"}"#,
        );
        let body = format!("grant_type=client_credentials&client_assertion={jwt}");
        let fields = proxied_request("https://login.example/t/oauth2/v2.0/token", &[], &body)
            .fields(&InputNames::default());
        assert_eq!(fields["form.grant_type"], "client_credentials");
        assert_eq!(fields["assertion.header.alg"], "PS256");
        assert_eq!(fields["assertion.header.x5t#S256"], "3 bytes, without padding");
        assert_eq!(fields["assertion.header.x5c"], "base64 of DER, base64 of something else");
        assert_eq!(fields["assertion.claims.exp"], "nbf + 600 s");
        assert_eq!(fields["assertion.claims.nbf"], "<time>");
        assert_eq!(fields["assertion.claims.jti"], "<random uuid>");
        assert_eq!(fields["assertion.claims.iss"], "client");
        assert!(fields.values().all(|value| !value.contains(&jwt)), "the assertion is not kept");
    }

    #[test]
    fn a_thumbprint_is_the_same_in_both_alphabets() {
        assert_eq!(decode_thumbprint("-_8"), decode_thumbprint("+/8="));
        assert_ne!(decode_thumbprint("-_8"), decode_thumbprint("AAA"));
    }

    #[test]
    fn a_federated_token_is_compared_as_a_whole() {
        let token = assertion(r#"{"alg":"RS256"}"#, r#"{"sub":"workload"}"#);
        let known = InputNames::new([(token.clone(), "<federated token>")]);
        let body = format!("client_assertion={token}");
        let fields = proxied_request("https://login.example/t/token", &[], &body).fields(&known);
        assert_eq!(fields["form.client_assertion"], "<federated token>");
    }
}
