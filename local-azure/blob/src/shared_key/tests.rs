use http::{HeaderMap, HeaderName, HeaderValue, Method};
use lanyard_emulator_state::keys::RedactedText;
use lanyard_emulator_state::request::RequestScheme;
use lanyard_emulator_state::storage::account::AccountKey;

use super::*;
use crate::tests::test_account;

/// A request as the Python SDK 12.31.1 signs it, with its string to sign.
struct SignedRequest {
    method: &'static str,
    url: &'static str,
    headers: &'static [(&'static str, &'static str)],
    string_to_sign: &'static str,
    authorization: &'static str,
}

const SIGNED_REQUESTS: &[SignedRequest] = &[
    SignedRequest {
        method: "GET",
        url: "https://acct.blob.core.windows.net/?comp=list",
        headers: &[("x-ms-date", "Sat, 21 Nov 2026 12:00:00 GMT"), ("x-ms-version", "2026-10-06")],
        string_to_sign: "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Sat, 21 Nov 2026 12:00:00 GMT\nx-ms-version:2026-10-06\n/acct/\ncomp:list",
        authorization: "SharedKey acct:Rqy2/6dTcFCXPOc9t38XBixwqTp+Wqc2i0AQO/Amlzk=",
    },
    SignedRequest {
        method: "GET",
        url: "https://acct.blob.core.windows.net/con?restype=container&comp=list&prefix=a%20b%2Fc&include=metadata%2Ctags&maxresults=2",
        headers: &[
            ("x-ms-date", "Sat, 21 Nov 2026 12:00:00 GMT"),
            ("x-ms-version", "2026-10-06"),
            ("x-ms-client-request-id", "1"),
        ],
        string_to_sign: "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-client-request-id:1\nx-ms-date:Sat, 21 Nov 2026 12:00:00 GMT\nx-ms-version:2026-10-06\n/acct/con\ncomp:list\ninclude:metadata,tags\nmaxresults:2\nprefix:a b/c\nrestype:container",
        authorization: "SharedKey acct:JFJ+p6lluTCZzI/Ya28nF6ug8C/gaI6XdqNTBc1iDFg=",
    },
    SignedRequest {
        method: "PUT",
        url: "https://acct.blob.core.windows.net/con/dir/a%20b+%C3%BC%25.txt",
        headers: &[
            ("x-ms-date", "Sat, 21 Nov 2026 12:00:00 GMT"),
            ("x-ms-version", "2026-10-06"),
            ("content-length", "11"),
            ("content-type", "application/octet-stream"),
            ("x-ms-blob-type", "BlockBlob"),
            ("x-ms-meta-a_b", "1"),
            ("x-ms-meta-aa", "2"),
            ("x-ms-meta-a", "3"),
            ("if-none-match", "*"),
            ("content-md5", "XrY7u+Ae7tCTyyK7j1rNww=="),
        ],
        string_to_sign: "PUT\n\n\n11\nXrY7u+Ae7tCTyyK7j1rNww==\napplication/octet-stream\n\n\n\n*\n\n\nx-ms-blob-type:BlockBlob\nx-ms-date:Sat, 21 Nov 2026 12:00:00 GMT\nx-ms-meta-a:3\nx-ms-meta-a_b:1\nx-ms-meta-aa:2\nx-ms-version:2026-10-06\n/acct/con/dir/a%20b+%C3%BC%25.txt",
        authorization: "SharedKey acct:D5aII8gy92IQh++5P0mDG1VPRyk23DBOqEfc55FtKuI=",
    },
    SignedRequest {
        method: "PUT",
        url: "https://acct.blob.core.windows.net/con/b?comp=block&blockid=YWE%3D",
        headers: &[
            ("x-ms-date", "Sat, 21 Nov 2026 12:00:00 GMT"),
            ("x-ms-version", "2026-10-06"),
            ("content-length", "0"),
            ("x-ms-lease-id", "x"),
        ],
        string_to_sign: "PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Sat, 21 Nov 2026 12:00:00 GMT\nx-ms-lease-id:x\nx-ms-version:2026-10-06\n/acct/con/b\nblockid:YWE=\ncomp:block",
        authorization: "SharedKey acct:dNJ1o9MlmJO+0EtO0rRLssf7GabXWptMl0bDmgLxzPM=",
    },
    SignedRequest {
        method: "GET",
        url: "https://acct.blob.core.windows.net/con/b",
        headers: &[
            ("x-ms-date", "Sat, 21 Nov 2026 12:00:00 GMT"),
            ("x-ms-version", "2026-10-06"),
            ("x-ms-range", "bytes=0-9"),
            ("if-modified-since", "Sat, 21 Nov 2026 12:00:00 GMT"),
            ("if-match", "\"0x1\""),
            ("if-unmodified-since", "Sat, 21 Nov 2026 12:00:00 GMT"),
        ],
        string_to_sign: "GET\n\n\n\n\n\n\nSat, 21 Nov 2026 12:00:00 GMT\n\"0x1\"\n\nSat, 21 Nov 2026 12:00:00 GMT\n\nx-ms-date:Sat, 21 Nov 2026 12:00:00 GMT\nx-ms-range:bytes=0-9\nx-ms-version:2026-10-06\n/acct/con/b",
        authorization: "SharedKey acct:N/2kMu2TIH0VzftbE8+q12TUiZqDXtRfKQT2m/yleV4=",
    },
    SignedRequest {
        method: "GET",
        url: "https://acct.blob.core.windows.net/con//b/",
        headers: &[("date", "Sat, 21 Nov 2026 12:00:00 GMT"), ("x-ms-version", "2026-10-06")],
        string_to_sign: "GET\n\n\n\n\n\nSat, 21 Nov 2026 12:00:00 GMT\n\n\n\n\n\nx-ms-version:2026-10-06\n/acct/con//b/",
        authorization: "SharedKey acct:zgW6jSw3CALF6gXCeNztV3MFPoHJRzaoEOFI8UcUYpQ=",
    },
];

fn request(signed: &SignedRequest) -> ServiceRequest {
    let url = url::Url::parse(signed.url).unwrap();
    let mut headers: HeaderMap = signed
        .headers
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
        .collect();
    headers.insert("authorization", HeaderValue::from_static(signed.authorization));
    ServiceRequest {
        method: Method::from_bytes(signed.method.as_bytes()).unwrap(),
        scheme: RequestScheme::Https,
        host: url.host_str().unwrap().to_owned(),
        port: 443,
        client_ip: None,
        path: url.path().to_owned(),
        query: url.query_pairs().into_owned().collect(),
        headers,
        body: bytes::Bytes::new(),
    }
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn verify(
    request: &ServiceRequest,
    account: &StorageAccount,
    now: &str,
) -> Result<(), SharedKeyError> {
    let (scheme, parameters) =
        parse_authorization(request.header("authorization").unwrap()).unwrap();
    verify_signature(request, account, scheme, parameters, &[time(now)])
}

#[test]
fn signatures_of_the_python_sdk_are_accepted() {
    let account = test_account();
    for signed in SIGNED_REQUESTS {
        let request = request(signed);
        assert_eq!(string_to_sign(&request, "acct"), signed.string_to_sign, "{}", signed.url);
        assert_eq!(verify(&request, &account, "2026-11-21T12:00:00Z"), Ok(()), "{}", signed.url);
    }
}

#[test]
fn any_change_of_a_signed_request_is_rejected() {
    let account = test_account();
    let rejected = |change: &dyn Fn(&mut ServiceRequest)| {
        let mut request = request(&SIGNED_REQUESTS[2]);
        change(&mut request);
        let outcome = verify(&request, &account, "2026-11-21T12:00:00Z");
        matches!(outcome, Err(SharedKeyError::SignatureMismatch { .. }))
    };
    assert!(rejected(&|request| request.method = Method::DELETE));
    assert!(rejected(&|request| request.path.push('x')));
    assert!(rejected(&|request| request.query.push(("comp".to_owned(), "tags".to_owned()))));
    for header in ["content-length", "content-type", "if-none-match", "x-ms-meta-a"] {
        assert!(rejected(&|request| drop(request.headers.remove(header))), "{header}");
    }
    assert!(!rejected(&|request| drop(
        request.headers.insert("accept", HeaderValue::from_static("a"))
    )));
}

#[test]
fn second_key_is_accepted_and_another_account_is_not() {
    let signed = request(&SIGNED_REQUESTS[0]);
    let mut account = test_account();
    account.keys.swap(0, 1);
    assert_eq!(verify(&signed, &account, "2026-11-21T12:00:00Z"), Ok(()));
    let value = RedactedText::new("b3RoZXI=".to_owned());
    account.keys[1] = AccountKey { value, created: Timestamp::UNIX_EPOCH };
    assert!(verify(&signed, &account, "2026-11-21T12:00:00Z").is_err());
    account.name = "other".parse().unwrap();
    let found = "acct".to_owned();
    assert_eq!(
        verify(&signed, &account, "2026-11-21T12:00:00Z"),
        Err(SharedKeyError::OtherAccount { found })
    );
}

#[test]
fn date_may_differ_by_fifteen_minutes() {
    let (account, signed) = (test_account(), request(&SIGNED_REQUESTS[0]));
    for (now, is_accepted) in [
        ("2026-11-21T12:15:00Z", true),
        ("2026-11-21T11:45:00Z", true),
        ("2026-11-21T12:15:01Z", false),
        ("2026-11-21T11:44:59Z", false),
    ] {
        assert_eq!(verify(&signed, &account, now).is_ok(), is_accepted, "{now}");
    }
    let (scheme, parameters) =
        parse_authorization(signed.header("authorization").unwrap()).unwrap();
    let clocks = [time("2027-11-21T12:00:00Z"), time("2026-11-21T12:00:00Z")];
    assert_eq!(verify_signature(&signed, &account, scheme, parameters, &clocks), Ok(()));
    let mut undated = signed.clone();
    undated.headers.remove("x-ms-date");
    assert_eq!(
        verify(&undated, &account, "2026-11-21T12:00:00Z"),
        Err(SharedKeyError::DateMissing)
    );
}

#[test]
fn lite_signature_covers_only_the_component_of_the_query() {
    let request = request(&SIGNED_REQUESTS[3]);
    let expected = "PUT\n\n\n\nx-ms-date:Sat, 21 Nov 2026 12:00:00 GMT\nx-ms-lease-id:x\n\
                    x-ms-version:2026-10-06\n/acct/con/b?comp=block";
    assert_eq!(string_to_sign_lite(&request, "acct"), expected);
}

#[test]
fn headers_are_ordered_as_the_service_orders_them() {
    // The order of the comparison in the Python SDK, which ignores hyphens first.
    let sorted = [
        "x-ms-meta-a",
        "x-ms-meta-a_b",
        "x-ms-meta-a1",
        "x-ms-metaaa",
        "x-ms-meta-aa",
        "x-ms-meta-ab",
        "x-ms-meta-a-b",
        "x-ms-meta-b",
    ];
    for pair in sorted.windows(2) {
        assert_eq!(compare_header_names(pair[0], pair[1]), Ordering::Less, "{pair:?}");
    }
}
