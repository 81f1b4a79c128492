use http::{HeaderMap, HeaderValue, Method};

use super::*;
use crate::sas::sas_request::SasRequest;
use crate::tests::test_account;

/// Signatures of the Python SDK 12.31.1.
const BLOB: &str = "st=2026-11-21T11%3A00%3A00Z&se=2026-11-21T13%3A00%3A00Z&sp=rw&sip=127.0.0.1-127.0.0.9&spr=https&sv=2026-10-06&sr=b&rscc=no-store&rsct=text/x&sig=J5WTasn0f%2Bd/A4tO/Weyw6zDZNn1pzaHEoK7qCBO29c%3D";
const CONTAINER: &str = "se=2026-11-21T13%3A00%3A00Z&sp=rl&sv=2026-10-06&sr=c&sig=5yz4qU1I5z5lgGJNhkUdEUEJffP4cX54/j2h3S1APUE%3D";
const POLICY: &str = "sv=2026-10-06&si=pol&sr=c&sig=4FIT5MEWUUoTnWrepjzrrhCxCEIbKOE75a07ZfEWCh0%3D";
const ACCOUNT: &str = "st=2026-11-21T11%3A00%3A00Z&se=2026-11-21T13%3A00%3A00Z&sp=rwlc&sv=2026-10-06&ss=b&srt=sco&sig=ap41uUZV8X7I7IErzVm78e1IODBI8HC0xPz5JCb5JzY%3D";
const DELEGATION: &str = "st=2026-11-21T11%3A00%3A00Z&se=2026-11-21T13%3A00%3A00Z&sp=r&sv=2026-10-06&sr=b&skoid=00000000-0000-0000-0000-0000000000c1&sktid=11111111-0000-4000-8000-000000000001&skt=2026-11-21T11%3A00%3A00Z&ske=2026-11-22T11%3A00%3A00Z&sks=b&skv=2026-10-06&sig=vY%2BuBdpmgsA79rFgxC6yFm3t4mzwpJo3HuCew8u8kh4%3D";
const DELEGATION_WITH_REQUEST: &str = "se=2026-11-21T13%3A00%3A00Z&sp=r&sv=2026-10-06&sr=b&skoid=00000000-0000-0000-0000-0000000000c1&sktid=11111111-0000-4000-8000-000000000001&skt=2026-11-21T11%3A00%3A00Z&ske=2026-11-22T11%3A00%3A00Z&sks=b&skv=2026-10-06&srh=x-ms-a&srq=q&sig=jsTQi6UJdKGtNWLAoEleC3RnmX5zDpENN5xIS3HbcwI%3D";
/// Signatures of the Python SDK 12.27.1, with an older version of the service.
const OLD_BLOB: &str = "st=2026-11-21T11%3A00%3A00Z&se=2026-11-21T13%3A00%3A00Z&sp=rw&sip=127.0.0.1-127.0.0.9&spr=https&sv=2025-11-05&sr=b&rscc=no-store&rsct=text/x&sig=vBu/mmMvEDcaHO4v0lKRRQogwvE7TaVvnojIH3AGLUk%3D";
const OLD_DELEGATION: &str = "st=2026-11-21T11%3A00%3A00Z&se=2026-11-21T13%3A00%3A00Z&sp=r&sv=2025-11-05&sr=b&skoid=00000000-0000-0000-0000-0000000000c1&sktid=11111111-0000-4000-8000-000000000001&skt=2026-11-21T11%3A00%3A00Z&ske=2026-11-22T11%3A00%3A00Z&sks=b&skv=2025-11-05&sig=LsXUorW1ASd9Ebi1XPiqU0Ppu0oK9yakyMGllg%2B2hCs%3D";

const NOON: &str = "2026-11-21T12:00:00Z";

fn request(path: &str, sas: &str) -> ServiceRequest {
    ServiceRequest {
        method: Method::GET,
        scheme: RequestScheme::Https,
        host: "acct.blob.core.windows.net".to_owned(),
        port: 443,
        client_ip: Some("127.0.0.1".parse().unwrap()),
        path: path.to_owned(),
        query: url::form_urlencoded::parse(sas.as_bytes()).into_owned().collect(),
        headers: HeaderMap::new(),
        body: bytes::Bytes::new(),
    }
}

fn policy(permission: &str, expiry: &str) -> StoredAccessPolicy {
    StoredAccessPolicy {
        start: None,
        expiry: Some(expiry.to_owned()),
        permission: Some(permission.to_owned()),
    }
}

fn verify_request(request: &ServiceRequest, now: &str) -> Result<SasGrant, SasError> {
    let target = BlobTarget::blob(request).unwrap();
    let find = |id: &str| (id == "pol").then(|| policy("r", "2026-11-21T13:00:00Z"));
    verify_sas(request, &test_account(), &target, find, now.parse().unwrap())
}

fn verify(path: &str, sas: &str, now: &str) -> Result<SasGrant, SasError> {
    verify_request(&request(path, sas), now)
}

#[test]
fn signatures_of_the_python_sdk_are_accepted() {
    let with_request = {
        let mut request = request("/con/b", &format!("{DELEGATION_WITH_REQUEST}&q=2"));
        request.headers.insert("x-ms-a", HeaderValue::from_static("1"));
        verify_request(&request, NOON)
    };
    let grants = [
        (verify("/con/dir/a%20b", BLOB, NOON), "rw", true, None),
        (verify("/con/dir/a%20b", OLD_BLOB, NOON), "rw", true, None),
        (verify("/con/any", CONTAINER, NOON), "rl", false, None),
        (verify("/con/any", POLICY, NOON), "r", false, None),
        (verify("/con/any", ACCOUNT, NOON), "rwlc", false, None),
        (verify("/con/b", DELEGATION, NOON), "r", true, Some(Uuid::from_u128(0xc1))),
        (verify("/con/b", OLD_DELEGATION, NOON), "r", true, Some(Uuid::from_u128(0xc1))),
        (with_request, "r", true, Some(Uuid::from_u128(0xc1))),
    ];
    for (at, (grant, permissions, is_for_one_blob, delegator)) in grants.into_iter().enumerate() {
        let grant = grant.unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(grant.permissions, permissions, "{at}");
        assert_eq!(grant.is_for_one_blob, is_for_one_blob, "{at}");
        assert_eq!(grant.delegator, delegator, "{at}");
    }
}

fn is_unauthenticated(outcome: &Result<SasGrant, SasError>) -> bool {
    matches!(outcome, Err(SasError::AuthenticationFailed(_)))
}

#[test]
fn signature_is_for_its_resource_and_its_parameters_only() {
    for (path, sas) in [
        ("/con/dir/other", BLOB),
        ("/other/any", CONTAINER),
        ("/con/other", DELEGATION),
        ("/con/b", DELEGATION_WITH_REQUEST),
    ] {
        assert!(is_unauthenticated(&verify(path, sas, NOON)), "{path}");
    }
    for (from, to) in
        [("sp=rw", "sp=rwd"), ("13%3A00", "14%3A00"), ("sip=127", "sip=126"), ("text/x", "text/y")]
    {
        let changed = BLOB.replacen(from, to, 1);
        assert_ne!(changed, BLOB);
        assert!(is_unauthenticated(&verify("/con/dir/a%20b", &changed, NOON)), "{from}");
    }
}

#[test]
fn signature_is_valid_from_its_start_to_its_expiry() {
    for (now, is_valid) in [
        ("2026-11-21T10:59:59Z", false),
        ("2026-11-21T11:00:00Z", true),
        ("2026-11-21T12:59:59Z", true),
        ("2026-11-21T13:00:00Z", false),
    ] {
        for sas in [BLOB, DELEGATION] {
            let path = if sas == BLOB { "/con/dir/a%20b" } else { "/con/b" };
            assert_eq!(verify(path, sas, now).is_ok(), is_valid, "{now}");
        }
    }
}

#[test]
fn client_address_and_protocol_are_restricted() {
    let with = |change: &dyn Fn(&mut ServiceRequest)| {
        let mut request = request("/con/dir/a%20b", BLOB);
        change(&mut request);
        verify_request(&request, NOON)
    };
    let from = |ip: &str| {
        let ip = ip.parse().unwrap();
        with(&move |request| request.client_ip = Some(ip))
    };
    assert!(from("127.0.0.9").is_ok());
    assert_eq!(from("127.0.0.10"), Err(SasError::SourceIp));
    assert_eq!(from("::1"), Err(SasError::SourceIp));
    let plain = with(&|request| request.scheme = RequestScheme::Http);
    assert_eq!(plain, Err(SasError::Protocol));
}

#[test]
fn stored_policy_completes_a_signature_and_must_exist() {
    let request = request("/con/any", POLICY);
    let verify = |policy: Option<StoredAccessPolicy>| {
        let target = BlobTarget::blob(&request).unwrap();
        verify_sas(&request, &test_account(), &target, |_| policy, NOON.parse().unwrap())
    };
    assert!(verify(Some(policy("r", "2026-11-22"))).is_ok());
    assert!(is_unauthenticated(&verify(Some(policy("r", "2026-11-21")))));
    assert!(is_unauthenticated(&verify(Some(StoredAccessPolicy::default()))));
    assert!(is_unauthenticated(&verify(None)));
}

#[test]
fn keys_do_not_sign_if_the_account_forbids_it() {
    let mut account = test_account();
    account.settings.allow_shared_key_access = false;
    let verify = |path: &str, sas: &str| {
        let request = request(path, sas);
        let target = BlobTarget::blob(&request).unwrap();
        verify_sas(&request, &account, &target, |_| None, NOON.parse().unwrap())
    };
    assert_eq!(verify("/con/any", CONTAINER), Err(SasError::KeyNotPermitted));
    assert_eq!(verify("/con/any", ACCOUNT), Err(SasError::KeyNotPermitted));
    assert!(verify("/con/b", DELEGATION).is_ok());
}

#[test]
fn issued_signatures_are_accepted() {
    let account = test_account();
    let mut service = SasRequest::default();
    for (name, value) in [("sp", "r"), ("se", "2026-11-22"), ("sr", "b")] {
        service.set(name, value);
    }
    let query = service.sign_service(&account, &account.keys[1], "con/b");
    assert_eq!(verify("/con/b", &query, NOON).unwrap().permissions, "r");
    let mut sas = SasRequest::default();
    for (name, value) in [("sp", "r"), ("se", "2026-11-22"), ("ss", "b"), ("srt", "o")] {
        sas.set(name, value);
    }
    let query = sas.sign_account(&account, &account.keys[0]);
    assert_eq!(verify("/con/b", &query, NOON).unwrap().resource_types.as_deref(), Some("o"));
}

#[test]
fn version_of_a_signature_is_one_of_the_service() {
    let account = test_account();
    let sign = |version: &str| {
        let mut parameters: Vec<_> = [
            ("se", "2026-11-21T13:00:00Z"),
            ("sp", "r"),
            ("ss", "b"),
            ("srt", "o"),
            ("sv", version),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let text = account_string_to_sign(SasParameters(&parameters), &account);
        parameters.push(("sig".to_owned(), account.keys[0].sign(&text)));
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish()
    };
    for (version, is_known) in [
        ("2015-04-05", true),
        ("2021-12-02", true),
        ("2026-10-06", true),
        ("zzzz", false),
        ("2021-12-03", false),
        ("2015-02-21", false),
        ("9999-12-31", false),
        ("2021-12-02 ", false),
        ("", false),
    ] {
        let outcome = verify("/con/b", &sign(version), NOON);
        assert_eq!(outcome.is_ok(), is_known, "{version}: {outcome:?}");
    }
}
