//! The static website of an account: anonymous reads of the blobs in `$web`.
//!
//! The public access of the container and of the account do not matter. Reference: "Static website hosting in
//! Azure Storage".

use bytes::Bytes;
use http::{Method, StatusCode};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::blob_service_properties::StaticWebsiteProperties;
use lanyard_emulator_state::storage::names::WEB_CONTAINER;
use lanyard_emulator_state::storage::store::{BlobKey, BlobStore, ContainerKey};
use lanyard_emulator_state::storage::stored_blob::StoredBlob;
use percent_encoding::percent_decode_str;

use super::conditions::RequestConditions;
use super::error::BlobErrorCode;
use super::range::parse_range;
use super::reply::{reply_with_etag, with_optional_header};

/// `GET /{path}` at the host of a website
pub(super) fn get_page(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let storage = &call.azure().storage;
    let (host, website) = find_website(storage, &call.request.host)
        .ok_or_else(|| not_found_page("WebsiteDisabled", "The account has no static website."))?;
    let Some(key) = find_page(storage, &host, website, &call.request.path) else {
        let error = website.error_document.as_deref().map(|path| web_blob(&host, path));
        let error = error.filter(|key| storage.blob(key).is_some());
        let error = error.ok_or_else(|| {
            not_found_page("WebContentNotFound", "The requested content does not exist.")
        })?;
        return page_reply(call, &error, StatusCode::NOT_FOUND);
    };
    page_reply(call, &key, StatusCode::OK)
}

/// The content of the page at a path of a website.
pub(super) fn find_public_page(storage: &BlobStore, host: &str, path: &str) -> Option<Bytes> {
    let (host, website) = find_website(storage, host)?;
    find_page(storage, &host, website, path).map(|key| storage.content(&key))
}

/// The host name of the Blob service of a website's account, and its settings if it is enabled.
fn find_website<'s>(
    storage: &'s BlobStore,
    host: &str,
) -> Option<(String, &'s StaticWebsiteProperties)> {
    // `<account>.<zone>.web.<suffix>`
    let (account, rest) = host.split_once('.')?;
    let (_, suffix) = rest.split_once(".web.")?;
    let host = format!("{account}.blob.{suffix}");
    let website = storage.account(&host)?.properties.static_website.as_ref()?;
    website.enabled.then_some((host, website))
}

/// The blob for a path: the blob itself, or the index document of a directory.
fn find_page(
    storage: &BlobStore,
    host: &str,
    website: &StaticWebsiteProperties,
    path: &str,
) -> Option<BlobKey> {
    let path = percent_decode_str(path.trim_start_matches('/')).decode_utf8().ok()?;
    let exact = web_blob(host, &path);
    if !path.is_empty() && storage.blob(&exact).is_some() {
        return Some(exact);
    }
    let directory = path.trim_end_matches('/');
    let index = website.index_document.as_deref().map(|index| match directory {
        "" => web_blob(host, index),
        directory => web_blob(host, &format!("{directory}/{index}")),
    });
    let default = website.default_index_document_path.as_deref().map(|path| web_blob(host, path));
    index.into_iter().chain(default).find(|key| storage.blob(key).is_some())
}

fn web_blob(host: &str, name: &str) -> BlobKey {
    ContainerKey { host: host.to_owned(), name: WEB_CONTAINER.to_owned() }.blob(name)
}

fn page_reply(
    call: &OperationContext<'_>,
    key: &BlobKey,
    status: StatusCode,
) -> Result<ServiceReply, ServiceReply> {
    let storage = &call.azure().storage;
    let blob = storage.blob(key).ok_or(BlobErrorCode::BLOB_NOT_FOUND)?;
    let content = storage.content(key);
    if status == StatusCode::NOT_FOUND {
        let mut reply = with_page_headers(status, blob).with_rejection_reason("WebContentNotFound");
        reply.body = content;
        return Ok(reply);
    }
    let conditions = RequestConditions::parse(call.request)?;
    conditions.check_read((blob.etag, blob.last_modified))?;
    let range = match call.request.method {
        Method::HEAD => None,
        _ => parse_range(call.request, content.len())?,
    };
    let Some(range) = range else {
        let mut reply = with_page_headers(status, blob);
        reply.body = content;
        return Ok(reply);
    };
    let mut reply = with_page_headers(StatusCode::PARTIAL_CONTENT, blob)
        .with_header("content-range", range.header_value());
    reply.body = content.slice(range.start..range.end);
    Ok(reply)
}

fn with_page_headers(status: StatusCode, blob: &StoredBlob) -> ServiceReply {
    let properties = &blob.properties;
    let reply = reply_with_etag(status, blob.etag, blob.last_modified)
        .with_header("content-type", blob.content_type())
        .with_header("accept-ranges", "bytes");
    let reply = with_optional_header(reply, "cache-control", properties.cache_control.as_ref());
    with_optional_header(reply, "content-encoding", properties.content_encoding.as_ref())
}

fn not_found_page(code: &'static str, message: &str) -> ServiceReply {
    let page = format!(
        "<!DOCTYPE html><html><head><title>{code}</title></head><body><h1>{message}</h1></body></html>"
    );
    ServiceReply::empty(StatusCode::NOT_FOUND)
        .with_body("text/html; charset=utf-8", page)
        .with_header("x-ms-error-code", code)
        .with_rejection_reason(code)
}
