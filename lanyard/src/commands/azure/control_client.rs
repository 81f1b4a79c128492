//! A client of the control API of a running local Azure.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::find_session;
use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};
use crate::settings::ProcessEnvironment;

/// The flag that selects the local Azure.
#[derive(Debug, clap::Args)]
pub(crate) struct ControlFlags {
    /// The state directory of the local Azure, if it was started with one [default: that of
    /// `LANYARD_AZURE_CONTROL`, or else the running `lanyard azure serve` or `lanyard up`]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl ControlFlags {
    /// The state directory.
    pub(super) fn state(&self) -> Option<&Path> {
        self.state.as_deref()
    }
}

/// The control API of a local Azure.
#[derive(Debug)]
pub(super) struct ControlClient {
    /// The base URL, which ends in `/lanyard/v1`.
    url: String,
}

impl ControlClient {
    /// The running local Azure: that of the state directory, or that of `lanyard azure run` and
    /// `lanyard azure env`, or that of the user.
    pub(super) fn find(
        flags: &ControlFlags,
        environment: &ProcessEnvironment,
    ) -> Result<Self, CommandError> {
        if let (None, Some(url)) = (&flags.state, &environment.local_azure_control) {
            return Ok(Self { url: url.trim_end_matches('/').to_owned() });
        }
        Ok(Self { url: find_session(flags.state.as_deref(), environment)?.control })
    }

    /// Sends a request, and returns the JSON of the reply; `null` for a reply without a body.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, CommandError> {
        let text = body.map(Value::to_string).unwrap_or_default();
        let (status, body) = self.exchange(method, path, text.into()).await?;
        parse_reply(status, &body)
    }

    /// Reads the JSON of a path; `None` if the reply is 404 with this error code.
    pub(super) async fn read_if_exists(
        &self,
        path: &str,
        missing: &str,
    ) -> Result<Option<Value>, CommandError> {
        let (status, body) = self.exchange(Method::GET, path, Bytes::new()).await?;
        parse_optional_reply(status, &body, missing)
    }

    /// Sends a request with a JSON text, and returns the body of the reply unparsed.
    pub(super) async fn send_text(
        &self,
        method: Method,
        path: &str,
        text: Vec<u8>,
    ) -> Result<Bytes, CommandError> {
        let (status, body) = self.exchange(method, path, text.into()).await?;
        if status.is_success() {
            return Ok(body);
        }
        Err(reply_error(status, serde_json::from_slice(&body).ok().as_ref()))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), CommandError> {
        let unreachable = format!("the local Azure at {} does not answer", self.url);
        let hint = "start one with `lanyard azure serve`";
        let request = Request::builder()
            .method(method)
            .uri(format!("{}/{path}", self.url))
            .header("content-type", "application/json")
            .header("x-lanyard-control", "1")
            .body(Full::new(body))
            .or_unavailable(&unreachable)
            .hint(hint)?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let reply = client.request(request).await.or_unavailable(&unreachable).hint(hint)?;
        let status = reply.status();
        let body = reply.into_body().collect().await.or_unavailable(&unreachable).hint(hint)?;
        Ok((status, body.to_bytes()))
    }
}

/// The path of an item in a collection. Every name is one segment, also `.` and names with `/` or `?`.
pub(super) fn item_path(collection: &str, name: &str) -> String {
    format!("{collection}/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// The JSON of a reply, or `None` for 404 with the error code `missing`, or another error.
fn parse_optional_reply(
    status: StatusCode,
    body: &[u8],
    missing: &str,
) -> Result<Option<Value>, CommandError> {
    let json = serde_json::from_slice::<Value>(body).ok();
    let code = json.as_ref().and_then(|json| json.pointer("/error/code")).and_then(Value::as_str);
    if status == StatusCode::NOT_FOUND && code == Some(missing) {
        return Ok(None);
    }
    parse_reply(status, body).map(Some)
}

/// The JSON of a reply, or the error in it.
fn parse_reply(status: StatusCode, body: &[u8]) -> Result<Value, CommandError> {
    let json =
        if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice::<Value>(body) };
    if status.is_success() {
        return json.or_unavailable("the reply of the local Azure is not JSON");
    }
    Err(reply_error(status, json.ok().as_ref()))
}

/// The error in a reply.
fn reply_error(status: StatusCode, json: Option<&Value>) -> CommandError {
    let message = json
        .and_then(|json| json.pointer("/error/message").and_then(Value::as_str).map(str::to_owned));
    let message = message.unwrap_or_else(|| format!("the local Azure returned {status}"));
    let message = message.trim_end_matches('.').to_owned();
    match status.as_u16() {
        400 | 404 => CommandError::invalid_input(message),
        _ => CommandError::unavailable(message),
    }
}

/// Reads a file in JSON or YAML.
pub(super) fn read_document(path: &Path) -> Result<Value, CommandError> {
    let invalid = format!("{} cannot be read", path.display());
    let text = std::fs::read_to_string(path).or_invalid(&invalid)?;
    serde_saphyr::from_str(&text).or_invalid(&invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_is_json_or_the_message_of_its_error() {
        let parse = |status, body: &str| {
            parse_reply(StatusCode::from_u16(status).unwrap(), body.as_bytes())
                .map_err(|error| error.to_string())
        };
        assert_eq!(parse(204, ""), Ok(Value::Null));
        assert_eq!(parse(200, "[1]"), Ok(serde_json::json!([1])));
        let body = r#"{"error": {"code": "C", "message": "`x` is unknown."}}"#;
        assert_eq!(parse(400, body), Err("error: `x` is unknown".to_owned()));
        assert!(parse(500, "<html>").unwrap_err().contains("500"));
    }

    #[test]
    fn only_the_named_error_code_means_that_the_object_does_not_exist() {
        let parse = |status, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            parse_optional_reply(status, body.as_bytes(), "NoTestClients")
                .map_err(|error| error.to_string())
        };
        let missing = r#"{"error": {"code": "NoTestClients", "message": "None."}}"#;
        assert_eq!(parse(404, missing), Ok(None));
        assert_eq!(parse(200, "{}"), Ok(Some(serde_json::json!({}))));
        let other = r#"{"error": {"code": "NotFound", "message": "No such path."}}"#;
        assert_eq!(parse(404, other), Err("error: No such path".to_owned()));
        assert!(parse(500, missing).is_err());
    }

    #[test]
    fn name_is_one_segment_of_the_path() {
        for (name, path) in
            [("a-1", "faults/a%2D1"), ("a/b?c d", "faults/a%2Fb%3Fc%20d"), ("..", "faults/%2E%2E")]
        {
            assert_eq!(item_path("faults", name), path);
        }
    }
}
