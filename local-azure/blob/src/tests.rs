mod append_blobs;

use http::{Method, StatusCode};
use jiff::Timestamp;
use lanyard_emulator::testing::{
    APP, EngineFixture, FEDERATED, LOGIN, SECRET, SUBJECT, TENANT, azure_with_test_principals,
    issuer_key, principal_mut, reply_json, sign_token, start_time,
};
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::authorization::RoleAssignment;
use lanyard_emulator_state::directory::{FederatedCredential, TrustedIssuer};
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::keys::RedactedText;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::account::{
    AccountKey, StorageAccount, StorageAccountSettings,
};
use lanyard_emulator_state::storage::container::PublicAccess;
use lanyard_emulator_state::storage::store::ContainerKey;
use lanyard_vocabulary::RoleDefinitionId;
use serde_json::json;
use uuid::Uuid;

use crate::public_document::read_public_document;
use crate::sas::sas_request::SasRequest;

const HOST: &str = "acct.blob.core.windows.net";
const ACCOUNT_ID: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/acct";
const VERSION: (&str, &str) = ("x-ms-version", "2026-10-06");
const READER: u128 = 0x2a2b_9908_6ea1_4ae2_8e65_a410_df84_e7d1;
const CONTRIBUTOR: u128 = 0xba92_f5b4_2d11_453d_a403_e96b_0029_c9fe;

fn key(text: &str) -> AccountKey {
    AccountKey { value: RedactedText::new(text.to_owned()), created: Timestamp::UNIX_EPOCH }
}

/// The account `acct`, with the keys that the signatures in the tests were computed with.
pub(super) fn test_account() -> StorageAccount {
    let settings = StorageAccountSettings {
        location: "eastus".to_owned(),
        kind: "StorageV2".to_owned(),
        sku: "Standard_LRS".to_owned(),
        allow_blob_public_access: true,
        allow_shared_key_access: true,
    };
    let id = ACCOUNT_ID.parse().unwrap();
    let (name, tenant) = ("acct".parse().unwrap(), TENANT.parse().unwrap());
    let account = StorageAccount::new(
        name,
        HOST.to_owned(),
        id,
        tenant,
        settings,
        (&mut IdGenerator::Random, start_time()),
    );
    StorageAccount {
        keys: [key("c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudC1mb3ItdGVzdHM="), key("b3RoZXI=")],
        delegation_key: key("ZGVsZWdhdGlvbi1rZXktb2YtdGhlLWFjY291bnQ="),
        ..account.unwrap()
    }
}

/// An account whose requests are signed with its account signature, unless the test does otherwise.
struct BlobFixture {
    engine: EngineFixture,
    sas: String,
}

impl BlobFixture {
    fn new() -> Self {
        Self::with_account(test_account())
    }

    fn with_account(account: StorageAccount) -> Self {
        let mut sas = SasRequest::default();
        for (name, value) in [("sp", "rwdlact"), ("se", "2027-01-01"), ("ss", "b"), ("srt", "sco")]
        {
            sas.set(name, value);
        }
        let sas = sas.sign_account(&account, &account.keys[0]);
        let mut azure = azure_with_test_principals();
        azure.storage.insert_account(account);
        Self { engine: EngineFixture::new(azure), sas }
    }

    /// With a container `con` that contains the blob `b` with the content `hello`.
    fn with_blob() -> Self {
        let fixture = Self::new();
        assert_eq!(fixture.put("con?restype=container", &[], ""), 201);
        assert_eq!(fixture.put("con/b", &[("x-ms-blob-type", "BlockBlob")], "hello"), 201);
        fixture
    }

    fn send(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> ServiceReply {
        let separator = if path.contains('?') { '&' } else { '?' };
        let url = format!("https://{HOST}/{path}{separator}{}", self.sas);
        self.engine.send_request(Ingress::Tunnel, method, &url, headers, body)
    }

    fn put(&self, path: &str, headers: &[(&str, &str)], body: &str) -> u16 {
        self.send(&Method::PUT, path, headers, body).status.as_u16()
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> ServiceReply {
        self.send(&Method::GET, path, headers, "")
    }

    /// Sends a request without the signature.
    fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> ServiceReply {
        self.engine.get(Ingress::Tunnel, &format!("https://{HOST}/{path}"), headers)
    }

    /// The header `Authorization` with a token of the test application.
    fn bearer_header(&self, resource: &str) -> String {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([
                ("grant_type", "client_credentials"),
                ("client_id", APP),
                ("client_secret", SECRET),
                ("scope", &format!("{resource}/.default")),
            ])
            .finish();
        let url = format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/token");
        let reply = self.engine.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &body);
        format!("Bearer {}", reply_json(&reply)["access_token"].as_str().unwrap())
    }

    /// Assigns a role to the test application.
    fn assign(&self, role: u128, scope: &str) {
        let mut state = self.engine.engine.state();
        let (name, role) = (Uuid::from_u128(role), RoleDefinitionId(Uuid::from_u128(role)));
        let principal = Uuid::from_u128(0xc1);
        let scope = scope.parse().unwrap();
        let assignment = RoleAssignment::new(name, scope, role, principal, start_time());
        state.azure.authorization.assign(assignment).unwrap();
    }

    fn set_public_access(&self, access: PublicAccess, is_permitted_by_account: bool) {
        let mut state = self.engine.engine.state();
        let storage = &mut state.azure.storage;
        let container = ContainerKey { host: HOST.to_owned(), name: "con".to_owned() };
        storage.container_mut(&container).unwrap().public_access = access;
        let account = storage.account_mut(HOST).unwrap();
        account.settings.allow_blob_public_access = is_permitted_by_account;
    }
}

fn header<'r>(reply: &'r ServiceReply, name: &str) -> &'r str {
    reply.header(name).unwrap_or_default()
}

fn code(reply: &ServiceReply) -> &str {
    header(reply, "x-ms-error-code")
}

fn text(reply: &ServiceReply) -> &str {
    std::str::from_utf8(&reply.body).unwrap()
}

#[test]
fn uploaded_blob_is_returned_with_its_properties() {
    let fixture = BlobFixture::with_blob();
    let upload = [
        ("x-ms-blob-type", "BlockBlob"),
        ("x-ms-blob-content-type", "application/json"),
        ("x-ms-blob-cache-control", "no-store"),
        ("x-ms-meta-owner", "issuer"),
        ("x-ms-tags", "a=1&b=2"),
    ];
    assert_eq!(fixture.put("con/.well-known/x", &upload, "{}"), 201);
    for method in [Method::GET, Method::HEAD] {
        let reply = fixture.send(&method, "con/.well-known/x", &[], "");
        assert_eq!((reply.status, text(&reply)), (StatusCode::OK, "{}"));
        for (name, value) in [
            ("content-type", "application/json"),
            ("cache-control", "no-store"),
            ("content-md5", "mZFLkyvTelC5g8XnyQrpOw=="),
            ("x-ms-meta-owner", "issuer"),
            ("x-ms-tag-count", "2"),
            ("x-ms-blob-type", "BlockBlob"),
            ("x-ms-lease-state", "available"),
            ("last-modified", "Sat, 21 Nov 2026 12:00:00 GMT"),
        ] {
            assert_eq!(header(&reply, name), value, "{method} {name}");
        }
    }
}

#[test]
fn only_the_content_of_blobs_may_be_large_and_only_from_its_writers() {
    let fixture = BlobFixture::with_blob();
    let admit = |query: &str| {
        let url = format!("https://{HOST}/con/b?{query}");
        fixture.engine.admit_large_body(Ingress::Tunnel, &Method::PUT, &url, &[VERSION])
    };
    for (query, with_signature) in [
        ("", 256 << 20),
        ("comp=block&blockid=AAAA", 256 << 20),
        ("comp=appendblock", 100 << 20),
        ("comp=blocklist", 8 << 20),
    ] {
        assert_eq!(admit(&format!("{query}&{}", fixture.sas)), Ok(with_signature), "{query}");
        assert_eq!(admit(query), Err(401), "{query}");
        let forged = fixture.sas.replace("sig=", "sig=AAAA");
        assert_eq!(admit(&format!("{query}&{forged}")), Err(403), "{query}");
    }
    assert_eq!(admit(&format!("comp=tags&{}", fixture.sas)), Ok(64 << 10));
}

#[test]
fn every_slash_is_part_of_the_name_of_a_blob() {
    let fixture = BlobFixture::with_blob();
    for name in ["a/b", "a//b", "a/b/", "/a"] {
        assert_eq!(
            fixture.put(&format!("con/{name}"), &[("x-ms-blob-type", "BlockBlob")], name),
            201
        );
    }
    for name in ["a/b", "a//b", "a/b/", "/a"] {
        assert_eq!(text(&fixture.get(&format!("con/{name}"), &[])), name);
    }
}

#[test]
fn content_is_shared_with_every_reply() {
    let fixture = BlobFixture::with_blob();
    let (one, other) = (fixture.get("con/b", &[]), fixture.get("con/b", &[]));
    assert_eq!(one.body.as_ptr(), other.body.as_ptr());
    let part = fixture.get("con/b", &[("x-ms-range", "bytes=1-2")]);
    assert_eq!(part.body.as_ptr(), one.body[1..].as_ptr());
}

#[test]
fn range_of_a_blob_is_returned_with_its_place() {
    let fixture = BlobFixture::with_blob();
    for (range, status, body, place) in [
        ("bytes=0-0", 206, "h", "bytes 0-0/5"),
        ("bytes=1-3", 206, "ell", "bytes 1-3/5"),
        ("bytes=3-", 206, "lo", "bytes 3-4/5"),
        ("bytes=3-99", 206, "lo", "bytes 3-4/5"),
        ("bytes=-2", 200, "hello", ""),
    ] {
        let reply = fixture.get("con/b", &[("range", range)]);
        assert_eq!((reply.status.as_u16(), text(&reply)), (status, body), "{range}");
        assert_eq!(header(&reply, "content-range"), place, "{range}");
    }
    let reply = fixture.get("con/b", &[("range", "bytes=5-")]);
    assert_eq!((reply.status.as_u16(), code(&reply)), (416, "InvalidRange"));
}

/// The headers of an upload, and status and error code of its reply.
type UploadCase<'a> = (&'a [(&'a str, &'a str)], u16, &'a str);

#[test]
fn failed_upload_changes_nothing() {
    let fixture = BlobFixture::with_blob();
    let cases: [UploadCase<'_>; 7] = [
        (&[], 400, "MissingRequiredHeader"),
        (&[("x-ms-blob-type", "PageBlob")], 501, "FeatureNotSupportedByEmulator"),
        (
            &[("x-ms-blob-type", "BlockBlob"), ("content-md5", "XrY7u+Ae7tCTyyK7j1rNww==")],
            400,
            "Md5Mismatch",
        ),
        (&[("x-ms-blob-type", "BlockBlob"), ("content-md5", "a")], 400, "InvalidMd5"),
        (&[("x-ms-blob-type", "BlockBlob"), ("if-none-match", "*")], 409, "BlobAlreadyExists"),
        (&[("x-ms-blob-type", "BlockBlob"), ("if-match", "0x1")], 412, "ConditionNotMet"),
        (&[("x-ms-blob-type", "BlockBlob"), ("x-ms-meta-a-b", "1")], 400, "InvalidMetadata"),
    ];
    for (headers, status, expected) in cases {
        let reply = fixture.send(&Method::PUT, "con/b", headers, "other");
        assert_eq!((reply.status.as_u16(), code(&reply)), (status, expected), "{headers:?}");
    }
    assert_eq!(text(&fixture.get("con/b", &[])), "hello");
    let missing = fixture.send(&Method::PUT, "none/b", &[("x-ms-blob-type", "BlockBlob")], "");
    assert_eq!(code(&missing), "ContainerNotFound");
}

#[test]
fn blocks_become_a_blob_when_they_are_committed() {
    let fixture = BlobFixture::with_blob();
    for (id, content) in [("YQ==", "one "), ("Yg==", "two "), ("Yw==", "three")] {
        assert_eq!(fixture.put(&format!("con/big?comp=block&blockid={id}"), &[], content), 201);
    }
    assert_eq!(fixture.get("con/big", &[]).status, StatusCode::NOT_FOUND);
    let list = "<BlockList><Latest>YQ==</Latest><Uncommitted>Yw==</Uncommitted></BlockList>";
    assert_eq!(fixture.put("con/big?comp=blocklist", &[], list), 201);
    assert_eq!(text(&fixture.get("con/big", &[])), "one three");
    // A commit discards the other blocks.
    let reply = fixture.get("con/big?comp=blocklist&blocklisttype=all", &[]);
    assert!(text(&reply).contains("<UncommittedBlocks></UncommittedBlocks>"), "{}", text(&reply));
    assert_eq!(fixture.put("con/big?comp=block&blockid=Yg==", &[], "2"), 201);
    let list = "<BlockList><Latest>Yg==</Latest><Committed>YQ==</Committed></BlockList>";
    assert_eq!(fixture.put("con/big?comp=blocklist", &[], list), 201);
    assert_eq!(text(&fixture.get("con/big", &[])), "2one ");
    let missing = "<BlockList><Committed>Yw==</Committed></BlockList>";
    let reply = fixture.send(&Method::PUT, "con/big?comp=blocklist", &[], missing);
    assert_eq!(code(&reply), "InvalidBlockList");
}

/// The names of blobs and prefixes in the pages of a list.
fn list_pages(fixture: &BlobFixture, query: &str) -> Vec<Vec<String>> {
    let (mut pages, mut marker) = (Vec::new(), String::new());
    loop {
        let reply =
            fixture.get(&format!("con?restype=container&comp=list&{query}&marker={marker}"), &[]);
        let xml = text(&reply);
        let between = |xml: &str, tag: &str| -> Vec<String> {
            let start = format!("<{tag}>");
            let parts = xml.split(&start).skip(1);
            parts.map(|part| part.split('<').next().unwrap().to_owned()).collect()
        };
        pages.push(between(xml, "Name"));
        marker = between(xml, "NextMarker").remove(0);
        if marker.is_empty() {
            return pages;
        }
    }
}

#[test]
fn list_has_pages_prefixes_and_delimiters() {
    let fixture = BlobFixture::with_blob();
    for name in ["a", "d/1", "d/2", "d/e/3", "d0", "e/1"] {
        assert_eq!(
            fixture.put(&format!("con/{name}"), &[("x-ms-blob-type", "BlockBlob")], ""),
            201
        );
    }
    let cases: [(&str, &[&[&str]]); 6] = [
        ("", &[&["a", "b", "d/1", "d/2", "d/e/3", "d0", "e/1"]]),
        ("maxresults=3", &[&["a", "b", "d/1"], &["d/2", "d/e/3", "d0"], &["e/1"]]),
        ("prefix=d", &[&["d/1", "d/2", "d/e/3", "d0"]]),
        ("delimiter=/", &[&["a", "b", "d/", "d0", "e/"]]),
        ("delimiter=/&maxresults=2", &[&["a", "b"], &["d/", "d0"], &["e/"]]),
        ("delimiter=/&prefix=d/", &[&["d/1", "d/2", "d/e/"]]),
    ];
    for (query, expected) in cases {
        assert_eq!(list_pages(&fixture, query), expected, "{query}");
    }
}

#[test]
fn anonymous_access_needs_a_public_container_in_a_permitting_account() {
    let fixture = BlobFixture::with_blob();
    let (blob, list) = ("con/b", "con?restype=container&comp=list");
    let denied = (401, "NoAuthenticationInformation");
    let forbidden = (409, "PublicAccessNotPermitted");
    let cases = [
        (PublicAccess::None, true, denied, denied),
        (PublicAccess::Blob, true, (200, ""), denied),
        (PublicAccess::Container, true, (200, ""), (200, "")),
        (PublicAccess::Container, false, forbidden, forbidden),
    ];
    for (access, is_permitted, blob_outcome, list_outcome) in cases {
        fixture.set_public_access(access, is_permitted);
        for (path, expected) in [(blob, blob_outcome), (list, list_outcome)] {
            let reply = fixture.get_with(path, &[VERSION]);
            assert_eq!((reply.status.as_u16(), code(&reply)), expected, "{access:?} {path}");
        }
    }
    fixture.set_public_access(PublicAccess::None, true);
    // Clients without a version cannot be challenged.
    assert_eq!(code(&fixture.get_with(blob, &[])), "ResourceNotFound");
    let challenge = fixture.get_with(blob, &[VERSION]);
    assert_eq!(
        header(&challenge, "www-authenticate"),
        format!(
            "Bearer authorization_uri=https://{LOGIN}/{TENANT}/oauth2/authorize resource_id=https://storage.azure.com"
        )
    );
    let unknown =
        fixture.engine.get(Ingress::Tunnel, "https://none.blob.core.windows.net/con/b", &[]);
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[test]
fn data_roles_grant_access_to_tokens_for_storage_only() {
    let fixture = BlobFixture::with_blob();
    let read = |audience: &str| {
        let token = fixture.bearer_header(audience);
        fixture.get_with("con/b", &[VERSION, ("authorization", &token)])
    };
    let storage = "https://storage.azure.com";
    assert_eq!(code(&read(storage)), "AuthorizationPermissionMismatch");
    fixture.assign(READER, &format!("{ACCOUNT_ID}/blobServices/default/containers/con"));
    for (audience, status) in [
        (storage, 200),
        ("https://acct.blob.core.windows.net", 200),
        ("https://other.blob.core.windows.net", 401),
        ("https://vault.azure.net", 401),
    ] {
        assert_eq!(read(audience).status.as_u16(), status, "{audience}");
    }
    let token = fixture.bearer_header(storage);
    let unversioned = fixture.get_with("con/b", &[("authorization", &token)]);
    assert_eq!(code(&unversioned), "AuthenticationFailed");
    let put = |name: &str| {
        let headers = [VERSION, ("authorization", token.as_str()), ("x-ms-blob-type", "BlockBlob")];
        let url = format!("https://{HOST}/con/{name}");
        fixture.engine.send_request(Ingress::Tunnel, &Method::PUT, &url, &headers, "x").status
    };
    assert_eq!(put("b"), StatusCode::FORBIDDEN);
    fixture.assign(CONTRIBUTOR, ACCOUNT_ID);
    assert_eq!(put("b"), StatusCode::CREATED);
}

#[test]
fn signature_grants_its_permissions_only() {
    let fixture = BlobFixture::with_blob();
    let account = test_account();
    let signed = |permissions: &str, resource: &str, path: &str| {
        let mut sas = SasRequest::default();
        for (name, value) in [("sp", permissions), ("se", "2027-01-01"), ("sr", resource)] {
            sas.set(name, value);
        }
        sas.sign_service(&account, &account.keys[0], path)
    };
    let status = |method: &Method, path: &str, sas: &str| {
        let separator = if path.contains('?') { '&' } else { '?' };
        let url = format!("https://{HOST}/{path}{separator}{sas}");
        let headers = [("x-ms-blob-type", "BlockBlob")];
        let reply = fixture.engine.send_request(Ingress::Tunnel, method, &url, &headers, "");
        (reply.status.as_u16(), code(&reply).to_owned())
    };
    let ok = |status| (status, String::new());
    let denied = (403, "AuthorizationPermissionMismatch".to_owned());
    let (read, write) = (signed("r", "b", "con/b"), signed("w", "c", "con"));
    let (create, list) = (signed("c", "c", "con"), signed("l", "c", "con"));
    assert_eq!(status(&Method::GET, "con/b", &read), ok(200));
    assert_eq!(status(&Method::PUT, "con/b", &read), denied);
    assert_eq!(status(&Method::PUT, "con/new", &create), ok(201));
    assert_eq!(status(&Method::PUT, "con/new", &create), denied);
    assert_eq!(status(&Method::PUT, "con/new", &write), ok(201));
    assert_eq!(status(&Method::GET, "con?restype=container&comp=list", &list), ok(200));
    let container = "con?restype=container";
    assert_eq!(
        status(&Method::DELETE, container, &write),
        (403, "AuthorizationFailure".to_owned())
    );
}

#[test]
fn copy_within_an_account_shares_content_and_takes_properties() {
    let fixture = BlobFixture::with_blob();
    let source = format!("https://{HOST}/con/b?{}", fixture.sas);
    let reply = fixture.send(&Method::PUT, "con/copy", &[("x-ms-copy-source", &source)], "");
    assert_eq!((reply.status.as_u16(), header(&reply, "x-ms-copy-status")), (202, "success"));
    let (copy, original) = (fixture.get("con/copy", &[]), fixture.get("con/b", &[]));
    assert_eq!(copy.body.as_ptr(), original.body.as_ptr());
    let without_signature = header(&copy, "x-ms-copy-source");
    assert_eq!(without_signature, format!("https://{HOST}/con/b"));
    // A signature for the destination does not open the source.
    let unsigned = format!("https://{HOST}/con/b");
    let reply = fixture.send(&Method::PUT, "con/copy", &[("x-ms-copy-source", &unsigned)], "");
    assert_eq!((reply.status.as_u16(), code(&reply)), (404, "CannotVerifyCopySource"));
}

#[test]
fn leased_blob_is_written_with_its_lease_only() {
    let fixture = BlobFixture::with_blob();
    let lease = [("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "15")];
    let reply = fixture.send(&Method::PUT, "con/b?comp=lease", &lease, "");
    let id = header(&reply, "x-ms-lease-id").to_owned();
    assert_eq!(reply.status, StatusCode::CREATED);
    let delete = |headers: &[(&str, &str)]| {
        let reply = fixture.send(&Method::DELETE, "con/b", headers, "");
        (reply.status.as_u16(), code(&reply).to_owned())
    };
    assert_eq!(delete(&[]), (412, "LeaseIdMissing".to_owned()));
    let other = ("x-ms-lease-id", "11111111-1111-4111-8111-111111111111");
    assert_eq!(delete(&[other]), (412, "LeaseIdMismatchWithBlobOperation".to_owned()));
    fixture.engine.clock.advance(std::time::Duration::from_secs(15));
    assert_eq!(delete(&[("x-ms-lease-id", &id)]), (412, "LeaseLost".to_owned()));
    assert_eq!(delete(&[]), (202, String::new()));
}

#[test]
fn every_write_to_a_leased_blob_needs_the_lease() {
    let tags = "<Tags><TagSet></TagSet></Tags>";
    let list = "<BlockList></BlockList>";
    let upload = ("x-ms-blob-type", "BlockBlob");
    let source = format!("https://{HOST}/con/source");
    let lease = ("x-ms-lease-id", "11111111-1111-4111-8111-111111111111");
    let writes: [(&Method, &str, (&str, &str), &str); 9] = [
        (&Method::PUT, "con/b", upload, "new"),
        (&Method::PUT, "con/b?comp=block&blockid=AAAA", upload, "new"),
        (&Method::PUT, "con/b?comp=blocklist", upload, list),
        (&Method::PUT, "con/b?comp=metadata", ("x-ms-meta-a", "1"), ""),
        (&Method::PUT, "con/b?comp=properties", ("x-ms-blob-content-type", "a/b"), ""),
        (&Method::PUT, "con/b?comp=tier", ("x-ms-access-tier", "Cool"), ""),
        (&Method::PUT, "con/b?comp=tags", upload, tags),
        (&Method::PUT, "con/b", ("x-ms-copy-source", &source), ""),
        (&Method::DELETE, "con/b", upload, ""),
    ];
    for (method, path, extra, body) in writes {
        let fixture = BlobFixture::with_blob();
        let copy_source = format!("{source}?{}", fixture.sas);
        let extra = if extra.0 == "x-ms-copy-source" { (extra.0, &*copy_source) } else { extra };
        assert_eq!(fixture.put("con/source", &[upload], "source"), 201);
        let acquire = [
            ("x-ms-lease-action", "acquire"),
            ("x-ms-lease-duration", "15"),
            ("x-ms-proposed-lease-id", lease.1),
        ];
        assert_eq!(fixture.put("con/b?comp=lease", &acquire, ""), 201);
        let write = |headers: &[(&str, &str)]| {
            let reply = fixture.send(method, path, headers, body);
            (reply.status.as_u16(), code(&reply).to_owned())
        };
        assert_eq!(write(&[extra]), (412, "LeaseIdMissing".to_owned()), "{method} {path}");
        fixture.engine.clock.advance(std::time::Duration::from_secs(15));
        assert_eq!(write(&[extra, lease]), (412, "LeaseLost".to_owned()), "{method} {path}");
        assert!(write(&[extra]).0 < 300, "{method} {path}");
    }
}

#[test]
fn container_lease_is_checked_with_the_codes_of_containers() {
    let fixture = BlobFixture::with_blob();
    let lease = ("x-ms-lease-id", "11111111-1111-4111-8111-111111111111");
    let acquire = [
        ("x-ms-lease-action", "acquire"),
        ("x-ms-lease-duration", "15"),
        ("x-ms-proposed-lease-id", lease.1),
    ];
    assert_eq!(fixture.put("con?restype=container&comp=lease", &acquire, ""), 201);
    let delete = |headers: &[(&str, &str)]| {
        let reply = fixture.send(&Method::DELETE, "con?restype=container", headers, "");
        (code(&reply).to_owned(), text(&reply).contains("lease on the container"))
    };
    assert_eq!(delete(&[]), ("LeaseIdMissing".to_owned(), true));
    fixture.engine.clock.advance(std::time::Duration::from_secs(15));
    assert_eq!(delete(&[lease]).0, "LeaseLost");
}

#[test]
fn static_website_serves_index_and_error_documents() {
    let fixture = BlobFixture::new();
    let body = "<StorageServiceProperties><StaticWebsite><Enabled>true</Enabled>\
                <IndexDocument>index.html</IndexDocument>\
                <ErrorDocument404Path>404.html</ErrorDocument404Path></StaticWebsite>\
                </StorageServiceProperties>";
    let page = |path: &str| {
        let url = format!("https://acct.z13.web.core.windows.net/{path}");
        let reply = fixture.engine.get(Ingress::Tunnel, &url, &[]);
        (reply.status.as_u16(), text(&reply).to_owned())
    };
    assert_eq!(page("").0, 404);
    assert_eq!(fixture.put("?restype=service&comp=properties", &[], body), 202);
    for (name, content) in [("index.html", "top"), ("dir/index.html", "dir"), ("404.html", "none")]
    {
        let headers = [("x-ms-blob-type", "BlockBlob")];
        assert_eq!(fixture.put(&format!("$web/{name}"), &headers, content), 201);
    }
    for (path, status, content) in [
        ("", 200, "top"),
        ("index.html", 200, "top"),
        ("dir", 200, "dir"),
        ("dir/", 200, "dir"),
        ("other", 404, "none"),
    ] {
        assert_eq!(page(path), (status, content.to_owned()), "{path}");
    }
}

#[test]
fn public_documents_are_read_as_an_anonymous_client_reads_them() {
    let fixture = BlobFixture::with_blob();
    let read = |url: &str| {
        let state = fixture.engine.engine.state();
        read_public_document(&state.azure, &fixture.engine.engine.clouds, &url.parse().unwrap())
    };
    let url = format!("https://{HOST}/con/b");
    assert_eq!(read(&url), Some(Err("ResourceNotFound")));
    fixture.set_public_access(PublicAccess::Blob, true);
    assert_eq!(read(&url), Some(Ok("hello".into())));
    assert_eq!(read(&format!("{url}x")), Some(Err("BlobNotFound")));
    fixture.set_public_access(PublicAccess::Blob, false);
    assert_eq!(read(&url), Some(Err("PublicAccessNotPermitted")));
    for other in [
        "https://example.com/con/b",
        "https://acct.queue.core.windows.net/q",
        "http://acct.blob.core.windows.net/con/b",
    ] {
        assert_eq!(read(other), None, "{other}");
    }
}

#[test]
fn federated_tokens_of_an_issuer_in_a_public_container_are_accepted() {
    let fixture = BlobFixture::with_blob();
    let issuer = format!("https://{HOST}/con");
    let trusted = TrustedIssuer {
        keys: [("k1".to_owned(), issuer_key())].into(),
        ..TrustedIssuer::default()
    };
    let discovery =
        json!({ "issuer": issuer, "jwks_uri": format!("{issuer}/openid/v1/jwks") }).to_string();
    let upload = [("x-ms-blob-type", "BlockBlob")];
    let keys = trusted.key_set().to_string();
    assert_eq!(fixture.put("con/.well-known/openid-configuration", &upload, &discovery), 201);
    assert_eq!(fixture.put("con/openid/v1/jwks", &upload, &keys), 201);
    principal_mut(&mut fixture.engine.engine.state().azure, FEDERATED).federated_credentials =
        vec![FederatedCredential::new("one", &issuer, SUBJECT, "openshift")];
    let now = start_time().as_second();
    let claims = json!({
        "iss": issuer, "sub": SUBJECT, "aud": "openshift", "iat": now, "nbf": now, "exp": now + 600,
    });
    let header = json!({ "alg": "RS256", "kid": "k1" });
    let assertion = sign_token(&header, &claims, &issuer_key());
    let request = || fixture.engine.request_token_with_assertion(FEDERATED, &assertion);
    let reply = request();
    assert_ne!(reply.status, StatusCode::OK);
    assert!(text(&reply).contains("ResourceNotFound"), "{}", text(&reply));
    fixture.set_public_access(PublicAccess::Container, true);
    assert_eq!(request().status, StatusCode::OK);
}

#[test]
fn operations_that_are_not_implemented_are_named() {
    let fixture = BlobFixture::with_blob();
    for (method, path, operation) in [
        (Method::PUT, "con/b?comp=snapshot", "PUT comp=snapshot"),
        (Method::POST, "?comp=batch", "POST comp=batch"),
        (Method::PUT, "con?restype=container&comp=undelete", "PUT restype=container comp=undelete"),
    ] {
        let reply = fixture.send(&method, path, &[], "");
        assert_eq!(reply.status, StatusCode::NOT_IMPLEMENTED, "{path}");
        assert!(text(&reply).contains(&format!("<Operation>{operation}</Operation>")), "{path}");
    }
}

#[test]
fn blobs_survive_the_state_file() {
    let fixture = BlobFixture::with_blob();
    let mut state = fixture.engine.engine.state();
    let mut rows = Vec::new();
    state.azure.for_each_table(&mut |name, table| {
        table.mark_all_changed();
        rows.extend(table.take_changes(name).unwrap());
    });
    let content = rows.iter().find(|row| row.table == "storage.blob-contents").unwrap();
    assert_eq!(content.row.as_deref(), Some(&b"hello"[..]));
    let mut loaded = lanyard_emulator_state::azure_state::AzureState::default();
    loaded.for_each_table(&mut |name, table| {
        for row in rows.iter().filter(|row| row.table == name) {
            table.load_row(&row.key, row.row.as_deref().unwrap()).unwrap();
        }
    });
    let container = ContainerKey { host: HOST.to_owned(), name: "con".to_owned() };
    assert_eq!(loaded.storage.content(&container.blob("b")), "hello");
    assert_eq!(loaded.storage.blob(&container.blob("b")).unwrap().length, 5);
}
