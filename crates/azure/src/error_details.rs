//! Error replies of Azure services, in the format of the Azure REST API guidelines.

use lanyard_credential::reply;
use serde::Deserialize;

/// The details of an error reply, on one line each and without secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AzureErrorDetails {
    /// The error code.
    pub code: Option<String>,
    /// The inner error code. Vaults use it to distinguish the reasons of `Forbidden`.
    pub inner_code: Option<String>,
    /// The error message, or the beginning of the body if it has another format, for example that
    /// of a proxy's error page.
    pub message: String,
}

#[derive(Debug, Default, Deserialize)]
struct AzureErrorBody {
    #[serde(default)]
    error: AzureErrorObject,
    /// AKS sends some errors without the object `error`.
    #[serde(default)]
    code: serde_json::Value,
    #[serde(default)]
    message: serde_json::Value,
}

#[derive(Debug, Default, Deserialize)]
struct AzureErrorObject {
    code: Option<String>,
    message: Option<String>,
    innererror: Option<Box<Self>>,
}

impl AzureErrorBody {
    fn detail(self) -> AzureErrorObject {
        let Self { error, code, message } = self;
        if error.code.is_some() || error.message.is_some() || code.as_str().is_none() {
            return error;
        }
        let text = |value: serde_json::Value| value.as_str().map(str::to_owned);
        AzureErrorObject { code: text(code), message: text(message), innererror: None }
    }
}

impl AzureErrorDetails {
    /// Parses the body of an error reply.
    pub fn parse(body: &[u8]) -> Self {
        Self::parse_redacting(body, &[])
    }

    /// Parses the body of an error reply, and redacts the secrets of the request, which the reply
    /// may echo.
    pub fn parse_redacting(body: &[u8], secrets: &[&str]) -> Self {
        let detail = serde_json::from_slice::<AzureErrorBody>(body).unwrap_or_default().detail();
        let excerpt = |text: &str| reply::excerpt_redacting(text, secrets);
        let shown =
            |text: Option<String>| text.filter(|text| !text.is_empty()).map(|text| excerpt(&text));
        let message = detail.message.filter(|message| !message.is_empty());
        Self {
            code: shown(detail.code),
            inner_code: shown(detail.innererror.and_then(|inner| inner.code)),
            message: message.map_or_else(
                || excerpt(&String::from_utf8_lossy(body)),
                |message| reply::service_message(&message, secrets),
            ),
        }
    }

    /// The inner code if there is one, otherwise the outer one.
    pub fn most_specific_code(&self) -> Option<&str> {
        self.inner_code.as_deref().or(self.code.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_error_code_is_preferred_over_the_outer_code() {
        let body = r#"{"error":{"code":"Forbidden","message":"no","innererror":{"code":"ForbiddenByRbac"}}}"#;
        let details = AzureErrorDetails::parse(body.as_bytes());
        assert_eq!(details.most_specific_code(), Some("ForbiddenByRbac"));
        assert_eq!((details.code.as_deref(), &*details.message), (Some("Forbidden"), "no"));
        let body =
            r#"{"error":{"code":"AuthorizationFailed","message":"m","innererror":{"code":""}}}"#;
        assert_eq!(
            AzureErrorDetails::parse(body.as_bytes()).most_specific_code(),
            Some("AuthorizationFailed")
        );
        let body = r#"{"code":"OperationNotAllowed","details":null,"message":"busy","subcode":""}"#;
        let details = AzureErrorDetails::parse(body.as_bytes());
        assert_eq!(
            (details.most_specific_code(), &*details.message),
            (Some("OperationNotAllowed"), "busy")
        );
        for body in
            ["", "{}", "[]", r#"{"error":null}"#, r#"{"error":{"code":7}}"#, "<html>gateway"]
        {
            let details = AzureErrorDetails::parse(body.as_bytes());
            assert_eq!((details.most_specific_code(), &*details.message), (None, body), "{body}");
        }
    }

    #[test]
    fn echoed_token_is_redacted() {
        const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJwbGFudGVkIn0.c2lnbmF0dXJl";
        let page = format!("<pre>Authorization: Bearer {TOKEN}</pre>");
        let inner = serde_json::json!({"code": page});
        let json =
            serde_json::json!({"error": {"code": page, "message": page, "innererror": inner}});
        for body in [page, json.to_string()] {
            let text = format!("{:?}", AzureErrorDetails::parse(body.as_bytes()));
            assert!(!text.contains("eyJ") && !text.contains("c2lnbmF0"), "{text}");
        }
    }

    #[test]
    fn echoed_request_secret_is_redacted() {
        // A secret with the length of a thumbprint.
        const SEED: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
        let page = format!("<pre>value={SEED}</pre>");
        let inner = serde_json::json!({"code": page});
        let json =
            serde_json::json!({"error": {"code": page, "message": page, "innererror": inner}});
        for body in [page, json.to_string()] {
            let text =
                format!("{:?}", AzureErrorDetails::parse_redacting(body.as_bytes(), &[SEED]));
            assert!(text.contains("value=[redacted]") && !text.contains("AAEC"), "{text}");
        }
    }
}
