use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use lanyard_emulator_state::request::RequestScheme;
use lanyard_emulator_state::storage::store::BlobStore;

use super::*;

const BEFORE: &str = "Sat, 21 Nov 2026 11:59:59 GMT";
const SAME: &str = "Sat, 21 Nov 2026 12:00:00 GMT";

/// A resource that was changed within the second of [`SAME`].
fn version() -> ResourceVersion {
    let modified: Timestamp = "2026-11-21T12:00:00.5Z".parse().unwrap();
    (BlobStore::default().next_etag(modified), modified)
}

fn conditions(headers: &[(&'static str, &str)]) -> Result<RequestConditions, ServiceReply> {
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
        .collect();
    RequestConditions::parse(&ServiceRequest {
        method: Method::GET,
        scheme: RequestScheme::Https,
        host: String::new(),
        port: 443,
        client_ip: None,
        path: String::new(),
        query: Vec::new(),
        headers,
        body: bytes::Bytes::new(),
    })
}

#[test]
fn read_conditions_follow_the_documentation() {
    let version = version();
    let tag = format!("\"{}\"", version.0);
    let (ok, failed, unmodified) =
        (Ok(()), Err(BlobErrorCode::CONDITION_NOT_MET), Err(BlobErrorCode::NOT_MODIFIED));
    let cases: [(&[(&'static str, &str)], _); 14] = [
        (&[], ok),
        (&[("if-match", &tag)], ok),
        (&[("if-match", "*")], ok),
        (&[("if-match", "\"0x1\"")], failed),
        (&[("if-none-match", &tag)], unmodified),
        (&[("if-none-match", "\"0x1\"")], ok),
        (&[("if-none-match", "*")], Err(BlobErrorCode::UNSATISFIABLE_CONDITION)),
        (&[("if-modified-since", BEFORE)], ok),
        (&[("if-modified-since", SAME)], unmodified),
        (&[("if-unmodified-since", BEFORE)], failed),
        (&[("if-unmodified-since", SAME)], ok),
        // If one of the two holds, the resource is returned.
        (&[("if-none-match", &tag), ("if-modified-since", BEFORE)], ok),
        (&[("if-none-match", "\"0x1\""), ("if-modified-since", SAME)], ok),
        (&[("if-none-match", &tag), ("if-modified-since", SAME)], unmodified),
    ];
    for (headers, expected) in cases {
        assert_eq!(conditions(headers).unwrap().check_read(version), expected, "{headers:?}");
    }
}

#[test]
fn write_conditions_follow_the_documentation() {
    let version = version();
    let tag = version.0.to_string();
    let (ok, failed) = (Ok(()), Err(BlobErrorCode::CONDITION_NOT_MET));
    let cases: [(&[(&'static str, &str)], _, _); 9] = [
        (&[], ok, ok),
        (&[("if-match", &tag)], ok, failed),
        (&[("if-match", "*")], ok, failed),
        (&[("if-none-match", &tag)], failed, ok),
        (&[("if-none-match", "*")], failed, ok),
        (&[("if-modified-since", BEFORE)], ok, ok),
        (&[("if-modified-since", SAME)], failed, ok),
        (&[("if-unmodified-since", BEFORE)], failed, ok),
        (&[("if-unmodified-since", SAME)], ok, ok),
    ];
    for (headers, existing, missing) in cases {
        let conditions = conditions(headers).unwrap();
        assert_eq!(conditions.check_write(Some(version)), existing, "{headers:?}");
        assert_eq!(conditions.check_write(None), missing, "{headers:?}");
    }
}

#[test]
fn malformed_conditions_are_rejected() {
    for header in [("if-modified-since", "yesterday"), ("if-match", "\"a\", \"b\"")] {
        let reply = conditions(&[header]).unwrap_err();
        assert_eq!(reply.status, http::StatusCode::BAD_REQUEST, "{header:?}");
    }
    let reply = conditions(&[("x-ms-if-tags", "a = 1")]).unwrap_err();
    assert_eq!(reply.status, http::StatusCode::NOT_IMPLEMENTED);
}
