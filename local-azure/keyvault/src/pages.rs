//! Pages of lists.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use serde::Serialize;
use serde_json::json;

use super::error::VaultServiceError;

/// The page size of the service, and the maximum for clients.
const MAX_RESULTS: usize = 25;

/// The parameters of a list request, and the URL of its next page.
#[derive(Debug)]
pub(super) struct VaultPageRequest {
    base: String,
    size: usize,
    /// The marker of the last item on the previous page; `None` for the first page.
    pub(super) marker: Option<String>,
}

impl VaultPageRequest {
    /// Parses `maxresults` (1 to 25) and `$skiptoken`.
    pub(super) fn from_request(call: &OperationContext<'_>) -> Result<Self, ServiceReply> {
        let request = call.request;
        let reject = |text: String| VaultServiceError::BadParameter(text).to_reply();
        let size = match request.query("maxresults") {
            None => MAX_RESULTS,
            Some(text) => {
                text.parse().ok().filter(|size| (1..=MAX_RESULTS).contains(size)).ok_or_else(
                    || reject(format!("`maxresults={text}` is not 1 to {MAX_RESULTS}")),
                )?
            }
        };
        let marker = match request.query("$skiptoken") {
            None => None,
            Some(token) => {
                let marker =
                    URL_SAFE_NO_PAD.decode(token).ok().and_then(|m| String::from_utf8(m).ok());
                Some(
                    marker
                        .ok_or_else(|| reject("`$skiptoken` is not from this list".to_owned()))?,
                )
            }
        };
        let version = request.query("api-version").unwrap_or_default();
        let (origin, path) = (request.origin(), &request.path);
        let mut base = format!("{origin}{path}?api-version={version}&maxresults={size}");
        if includes_pending(call) {
            base.push_str("&includePending=true");
        }
        Ok(Self { base, size, marker })
    }

    /// Returns one page of `items`: pairs of marker and item, which start after [`Self::marker`].
    pub(super) fn page_reply<'a>(
        &self,
        items: impl Iterator<Item = (&'a str, impl Serialize)>,
    ) -> ServiceReply {
        let mut items: Vec<_> = items.take(self.size + 1).collect();
        let more = items.len() > self.size;
        items.truncate(self.size);
        let next = items.last().filter(|_| more).map(|(marker, _)| {
            format!("{}&$skiptoken={}", self.base, URL_SAFE_NO_PAD.encode(marker))
        });
        let value: Vec<_> = items.into_iter().map(|(_, item)| item).collect();
        ServiceReply::json(StatusCode::OK, &json!({ "value": value, "nextLink": next }))
    }
}

/// Whether a list of certificates includes pending ones, which are not issued yet.
pub(super) fn includes_pending(call: &OperationContext<'_>) -> bool {
    call.request.query("includePending").is_some_and(|text| text.eq_ignore_ascii_case("true"))
}
