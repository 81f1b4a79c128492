//! Requests to a storage account, signed with its key.
//!
//! Reference: "Authorize with Shared Key" of the Azure Storage REST API.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use libtest_mimic::Failed;

use super::https_connection::{HttpsTarget, PreparedRequest};
use super::load_generator::{RequestSource, requests_in_turn, require_success, send_all};

/// The version of the REST API.
const STORAGE_VERSION: &str = "2021-12-02";
/// A container whose blobs can be read without a signature.
const CONTAINER: &str = "benchmark";
/// The number of blobs that a load reads or writes.
const BLOB_COUNT: usize = 1_000;
const BLOB_BYTES: usize = 1_024;

/// A storage account with its key. Requests are signed for the time at which the account was created here;
/// servers accept them for 15 minutes.
pub(super) struct BlobAccount {
    pub(super) target: HttpsTarget,
    name: String,
    key: hmac::Key,
    signed_at: String,
}

impl BlobAccount {
    /// An account with its key in base64.
    pub(super) fn new(
        target: HttpsTarget,
        name: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Self, Failed> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(key)?);
        let signed_at = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        Ok(Self { target, name: name.to_owned(), key, signed_at })
    }

    /// The host name of an account in the public cloud.
    pub(super) fn host(name: &str) -> String {
        format!("{name}.blob.core.windows.net")
    }

    /// Creates the container and its blobs.
    pub(super) async fn create_blobs(&self) -> Result<(), Failed> {
        let headers = [(HeaderName::from_static("x-ms-blob-public-access"), "blob")];
        let path = format!("/{CONTAINER}?restype=container");
        let request = self.signed_request(Method::PUT, &path, &headers, Bytes::new())?;
        let response = self.target.send(&request).await?;
        require_success(&request, &response)?;
        send_all(&self.target, self.put_requests()?).await
    }

    /// Signed `PUT` of the blobs in turn.
    pub(super) fn put_blobs(&self) -> Result<RequestSource, Failed> {
        Ok(requests_in_turn(self.put_requests()?))
    }

    fn put_requests(&self) -> Result<Vec<PreparedRequest>, Failed> {
        let body = Bytes::from(vec![b'b'; BLOB_BYTES]);
        let headers = [
            (HeaderName::from_static("x-ms-blob-type"), "BlockBlob"),
            (CONTENT_TYPE, "application/octet-stream"),
        ];
        let requests = (0..BLOB_COUNT)
            .map(|blob| self.signed_request(Method::PUT, &blob_path(blob), &headers, body.clone()));
        requests.collect()
    }

    /// Anonymous `GET` of the blobs in turn.
    pub(super) fn get_blobs() -> Result<RequestSource, Failed> {
        let requests = (0..BLOB_COUNT).map(get_blob);
        Ok(requests_in_turn(requests.collect::<Result<_, _>>()?))
    }

    fn signed_request(
        &self,
        method: Method,
        path: &str,
        extra_headers: &[(HeaderName, &str)],
        body: Bytes,
    ) -> Result<PreparedRequest, Failed> {
        let mut headers = HeaderMap::new();
        headers.insert("x-ms-date", self.signed_at.parse()?);
        headers.insert("x-ms-version", HeaderValue::from_static(STORAGE_VERSION));
        for (name, value) in extra_headers {
            headers.insert(name, value.parse()?);
        }
        let mut request = PreparedRequest { method, path: path.parse()?, headers, body };
        let text = string_to_sign(&self.name, &request)?;
        let signature = STANDARD.encode(hmac::sign(&self.key, text.as_bytes()));
        let value = format!("SharedKey {}:{signature}", self.name);
        request.headers.insert(AUTHORIZATION, value.parse()?);
        Ok(request)
    }
}

/// An anonymous `GET` of a blob.
pub(super) fn get_blob(number: usize) -> Result<PreparedRequest, Failed> {
    let version = HeaderValue::from_static(STORAGE_VERSION);
    let headers = HeaderMap::from_iter([(HeaderName::from_static("x-ms-version"), version)]);
    let path = blob_path(number).parse()?;
    Ok(PreparedRequest { method: Method::GET, path, headers, body: Bytes::new() })
}

fn blob_path(number: usize) -> String {
    format!("/{CONTAINER}/blob-{number:04}")
}

/// The text that is signed. The headers `Content-Encoding`, `Content-Language`, `Content-MD5`, `Date`, `If-*`
/// and `Range` are empty.
fn string_to_sign(account: &str, request: &PreparedRequest) -> Result<String, Failed> {
    let length =
        if request.body.is_empty() { String::new() } else { request.body.len().to_string() };
    let content_type = request.headers.get(CONTENT_TYPE).map_or(Ok(""), HeaderValue::to_str)?;
    let mut named = Vec::new();
    for (name, value) in &request.headers {
        if name.as_str().starts_with("x-ms-") {
            named.push(format!("{name}:{}\n", value.to_str()?));
        }
    }
    named.sort_unstable();
    let headers = named.concat();
    let query = request.path.query().unwrap_or_default();
    let mut parameters: Vec<_> = url::form_urlencoded::parse(query.as_bytes())
        .map(|(name, value)| format!("\n{name}:{value}"))
        .collect();
    parameters.sort_unstable();
    let parameters = parameters.concat();
    let path = request.path.path();
    Ok(format!(
        "{}\n\n\n{length}\n\n{content_type}\n\n\n\n\n\n\n{headers}/{account}{path}{parameters}",
        request.method
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_to_sign_has_the_documented_order() {
        let headers = [
            ("x-ms-version", "2015-02-21"),
            ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"),
            ("authorization", "left out"),
        ];
        let headers = headers
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut request = PreparedRequest {
            method: Method::GET,
            path: "/mycontainer?restype=container&comp=metadata".parse().expect("a path"),
            headers: HeaderMap::from_iter(headers),
            body: Bytes::new(),
        };
        assert_eq!(
            string_to_sign("myaccount", &request).expect("the headers are text"),
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\n\
             x-ms-version:2015-02-21\n/myaccount/mycontainer\ncomp:metadata\nrestype:container"
        );
        request.body = Bytes::from_static(b"three");
        let text = string_to_sign("myaccount", &request).expect("the headers are text");
        assert!(text.starts_with("GET\n\n\n5\n"), "{text}");
    }
}
