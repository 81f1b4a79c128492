use std::time::Duration;

use lanyard_emulator_state::storage::store::ContainerKey;
use lanyard_emulator_state::storage::stored_blob::BlobKind;

use super::*;

const APPEND: &str = "con/log?comp=appendblock";
const LEASE: &str = "con/log?comp=lease";

/// A container with an empty append blob `log`.
fn fixture_with_append_blob() -> BlobFixture {
    let fixture = BlobFixture::with_blob();
    assert_eq!(fixture.put("con/log", &[("x-ms-blob-type", "AppendBlob")], ""), 201);
    fixture
}

impl BlobFixture {
    /// Status and error code of an append.
    fn append(&self, headers: &[(&str, &str)], block: &str) -> (u16, String) {
        let reply = self.send(&Method::PUT, APPEND, headers, block);
        (reply.status.as_u16(), code(&reply).to_owned())
    }

    /// Acquires a lease of 15 seconds, and returns its id.
    fn acquire(&self) -> String {
        let headers = [("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "15")];
        let reply = self.send(&Method::PUT, LEASE, &headers, "");
        assert_eq!(reply.status, StatusCode::CREATED);
        header(&reply, "x-ms-lease-id").to_owned()
    }
}

fn created() -> (u16, String) {
    (201, String::new())
}

#[test]
fn appended_blocks_follow_each_other() {
    let fixture = fixture_with_append_blob();
    for (block, offset, count) in [("one\n", "0", "1"), ("two\n", "4", "2")] {
        let reply = fixture.send(&Method::PUT, APPEND, &[], block);
        assert_eq!(reply.status, StatusCode::CREATED);
        assert_eq!(header(&reply, "x-ms-blob-append-offset"), offset);
        assert_eq!(header(&reply, "x-ms-blob-committed-block-count"), count);
    }
    for method in [Method::GET, Method::HEAD] {
        let reply = fixture.send(&method, "con/log", &[], "");
        assert_eq!(text(&reply), "one\ntwo\n");
        assert_eq!(header(&reply, "x-ms-blob-type"), "AppendBlob");
        assert_eq!(header(&reply, "x-ms-blob-committed-block-count"), "2");
        assert_eq!(header(&reply, "x-ms-access-tier"), "");
    }
    let list = fixture.get("con?restype=container&comp=list&prefix=log", &[]);
    assert!(text(&list).contains("<BlobType>AppendBlob</BlobType>"), "{}", text(&list));
    assert!(!text(&list).contains("AccessTier"), "{}", text(&list));
    // A new upload empties the blob.
    assert_eq!(fixture.put("con/log", &[("x-ms-blob-type", "AppendBlob")], ""), 201);
    assert_eq!(text(&fixture.get("con/log", &[])), "");
}

#[test]
fn append_conditions_are_those_of_the_length() {
    let fixture = fixture_with_append_blob();
    let position = |position| [("x-ms-blob-condition-appendpos", position)];
    assert_eq!(fixture.append(&position("0"), "one"), created());
    for wrong in ["0", "2", "4"] {
        let expected = (412, "AppendPositionConditionNotMet".to_owned());
        assert_eq!(fixture.append(&position(wrong), "two"), expected, "{wrong}");
    }
    assert_eq!(fixture.append(&position("x"), "two").1, "InvalidHeaderValue");
    let size = |size| [("x-ms-blob-condition-maxsize", size)];
    let expected = (412, "MaxBlobSizeConditionNotMet".to_owned());
    assert_eq!(fixture.append(&size("5"), "two"), expected);
    assert_eq!(fixture.append(&size("6"), "two"), created());
    assert_eq!(text(&fixture.get("con/log", &[])), "onetwo");
}

#[test]
fn append_needs_an_append_blob_and_content() {
    let fixture = fixture_with_append_blob();
    let reply = |path: &str, body: &str| {
        let reply = fixture.send(&Method::PUT, path, &[], body);
        (reply.status.as_u16(), code(&reply).to_owned())
    };
    for (path, body, expected) in [
        ("con/none?comp=appendblock", "x", (404, "BlobNotFound")),
        ("none/log?comp=appendblock", "x", (404, "ContainerNotFound")),
        ("con/b?comp=appendblock", "x", (409, "InvalidBlobType")),
        (APPEND, "", (400, "InvalidHeaderValue")),
        ("con/log?comp=block&blockid=YQ==", "x", (409, "InvalidBlobType")),
        ("con/log?comp=blocklist", "<BlockList></BlockList>", (409, "InvalidBlobType")),
    ] {
        assert_eq!(reply(path, body), (expected.0, expected.1.to_owned()), "{path}");
    }
    let tier = [("x-ms-access-tier", "Cool")];
    let reply = fixture.send(&Method::PUT, "con/log?comp=tier", &tier, "");
    assert_eq!(code(&reply), "InvalidBlobType");
    let with_content = fixture.put("con/full", &[("x-ms-blob-type", "AppendBlob")], "x");
    assert_eq!(with_content, 400);
}

#[test]
fn append_blob_has_at_most_fifty_thousand_blocks() {
    let fixture = fixture_with_append_blob();
    {
        let mut state = fixture.engine.engine.state();
        let container = ContainerKey { host: HOST.to_owned(), name: "con".to_owned() };
        let blob = state.azure.storage.blob_mut(&container.blob("log")).unwrap();
        blob.kind = BlobKind::Append { blocks: 49_999 };
    }
    assert_eq!(fixture.append(&[], "last"), created());
    assert_eq!(fixture.append(&[], "more"), (409, "BlockCountExceedsLimit".to_owned()));
}

#[test]
fn append_to_a_leased_blob_needs_the_lease() {
    let fixture = fixture_with_append_blob();
    let id = fixture.acquire();
    let other = Uuid::from_u128(9).to_string();
    assert_eq!(fixture.append(&[], "x"), (412, "LeaseIdMissing".to_owned()));
    let mismatch = (412, "LeaseIdMismatchWithBlobOperation".to_owned());
    assert_eq!(fixture.append(&[("x-ms-lease-id", &other)], "x"), mismatch);
    assert_eq!(fixture.append(&[("x-ms-lease-id", &id)], "x"), created());
    let acquire = [
        ("x-ms-lease-action", "acquire"),
        ("x-ms-lease-duration", "60"),
        ("x-ms-proposed-lease-id", &other),
    ];
    let reply = fixture.send(&Method::PUT, LEASE, &acquire, "");
    assert_eq!((reply.status.as_u16(), code(&reply)), (409, "LeaseAlreadyPresent"));
    // The lease stays when the blob is emptied.
    let headers = [("x-ms-blob-type", "AppendBlob"), ("x-ms-lease-id", &id)];
    assert_eq!(fixture.put("con/log", &headers, ""), 201);
    assert_eq!(fixture.append(&[], "x").1, "LeaseIdMissing");

    fixture.engine.clock.advance(Duration::from_secs(15));
    let lost = (412, "LeaseLost".to_owned());
    assert_eq!(fixture.append(&[("x-ms-lease-id", &id)], "x"), lost);
    // Another client has the lease now, so the first one cannot renew its own.
    assert_eq!(fixture.put(LEASE, &acquire, ""), 201);
    let renew = [("x-ms-lease-action", "renew"), ("x-ms-lease-id", id.as_str())];
    let reply = fixture.send(&Method::PUT, LEASE, &renew, "");
    assert_eq!((reply.status.as_u16(), code(&reply)), (409, "LeaseIdMismatchWithLeaseOperation"));
    assert_eq!(fixture.append(&[("x-ms-lease-id", &id)], "x"), mismatch);
    let release = [("x-ms-lease-action", "release"), ("x-ms-lease-id", other.as_str())];
    assert_eq!(fixture.put(LEASE, &release, ""), 200);
    assert_eq!(fixture.append(&[], "x"), created());
}

#[test]
fn copy_of_an_append_blob_is_an_append_blob() {
    let fixture = fixture_with_append_blob();
    assert_eq!(fixture.append(&[], "x"), created());
    let source = format!("https://{HOST}/con/log?{}", fixture.sas);
    assert_eq!(fixture.put("con/copy", &[("x-ms-copy-source", &source)], ""), 202);
    assert_eq!(header(&fixture.get("con/copy", &[]), "x-ms-blob-type"), "AppendBlob");
    let reply = fixture.send(&Method::PUT, "con/b", &[("x-ms-copy-source", &source)], "");
    assert_eq!((reply.status.as_u16(), code(&reply)), (409, "InvalidBlobType"));
    let upload = [("x-ms-copy-source", source.as_str()), ("x-ms-blob-type", "BlockBlob")];
    let reply = fixture.send(&Method::PUT, "con/new", &upload, "");
    assert_eq!((reply.status.as_u16(), code(&reply)), (409, "InvalidBlobType"));
}
