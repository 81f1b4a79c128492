//! What a service says about a request that it refused: the error object of Azure's REST guidelines.

use lanyard_credential::reply;
use serde::Deserialize;

/// What a service said, with nothing secret in it and cut to a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AzureErrorDetails {
    /// The code.
    pub code: Option<String>,
    /// A vault says here what it means by `Forbidden`.
    pub inner_code: Option<String>,
    /// The words, or the beginning of a page that no service of Azure sends: a proxy may answer with
    /// one of its own, which says whose it is.
    pub message: String,
}

#[derive(Debug, Default, Deserialize)]
struct AzureErrorBody {
    #[serde(default)]
    error: AzureErrorObject,
}

#[derive(Debug, Default, Deserialize)]
struct AzureErrorObject {
    code: Option<String>,
    message: Option<String>,
    innererror: Option<Box<Self>>,
}

impl AzureErrorDetails {
    /// Reads the body of a reply.
    pub fn parse(body: &[u8]) -> Self {
        Self::parse_redacting(body, &[])
    }

    /// Reads the body of a reply to a request that had secrets in it: the reply may echo them.
    pub fn parse_redacting(body: &[u8], secrets: &[&str]) -> Self {
        let detail = serde_json::from_slice::<AzureErrorBody>(body).unwrap_or_default().error;
        let excerpt = |text: &str| reply::excerpt_redacting(text, secrets);
        let shown =
            |text: Option<String>| text.filter(|text| !text.is_empty()).map(|text| excerpt(&text));
        Self {
            code: shown(detail.code),
            inner_code: shown(detail.innererror.and_then(|inner| inner.code)),
            message: shown(detail.message)
                .unwrap_or_else(|| excerpt(&String::from_utf8_lossy(body))),
        }
    }

    /// The code that says most: the inner one, where there is one.
    pub fn most_specific_code(&self) -> Option<&str> {
        self.inner_code.as_deref().or(self.code.as_deref())
    }

    /// What to do next about a 403 of a vault with this code, where no role would help.
    pub fn non_role_hint(code: &str) -> Option<&'static str> {
        match code {
            "ForbiddenByFirewall" => Some(
                "the role is not asked for: admit the address in the message in the vault's network rules, or come by a private endpoint",
            ),
            "ForbiddenByConnection" => Some(
                "the role is not asked for: the vault takes private endpoints alone, so come by one, or allow public access",
            ),
            _ if code.ends_with("Disabled") => {
                Some("the permission is there: enable this version in the vault, or name another")
            }
            "KeyExpired" | "SecretExpired" | "KeyNotYetValid" | "SecretNotYetValid" => Some(
                "the permission is there: give this version other dates in the vault, or name another",
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_error_code_is_preferred_over_the_outer_code() {
        let body = r#"{"error":{"code":"Forbidden","message":"no","innererror":{"code":"ForbiddenByRbac"}}}"#;
        let refusal = AzureErrorDetails::parse(body.as_bytes());
        assert_eq!(refusal.most_specific_code(), Some("ForbiddenByRbac"));
        assert_eq!((refusal.code.as_deref(), &*refusal.message), (Some("Forbidden"), "no"));
        let body =
            r#"{"error":{"code":"AuthorizationFailed","message":"m","innererror":{"code":""}}}"#;
        assert_eq!(
            AzureErrorDetails::parse(body.as_bytes()).most_specific_code(),
            Some("AuthorizationFailed")
        );
        for body in
            ["", "{}", "[]", r#"{"error":null}"#, r#"{"error":{"code":7}}"#, "<html>gateway"]
        {
            let refusal = AzureErrorDetails::parse(body.as_bytes());
            assert_eq!((refusal.most_specific_code(), &*refusal.message), (None, body), "{body}");
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
            let told = format!("{:?}", AzureErrorDetails::parse(body.as_bytes()));
            assert!(!told.contains("eyJ") && !told.contains("c2lnbmF0"), "{told}");
        }
    }

    #[test]
    fn echoed_request_secret_is_redacted() {
        // As long as a thumbprint.
        const SEED: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
        let page = format!("<pre>value={SEED}</pre>");
        let inner = serde_json::json!({"code": page});
        let json =
            serde_json::json!({"error": {"code": page, "message": page, "innererror": inner}});
        for body in [page, json.to_string()] {
            let told =
                format!("{:?}", AzureErrorDetails::parse_redacting(body.as_bytes(), &[SEED]));
            assert!(told.contains("value=[redacted]") && !told.contains("AAEC"), "{told}");
        }
    }

    #[test]
    fn only_errors_that_no_role_fixes_have_a_non_role_hint() {
        for code in ["ForbiddenByFirewall", "ForbiddenByConnection", "KeyDisabled", "KeyExpired"] {
            let hint = AzureErrorDetails::non_role_hint(code).unwrap();
            assert!(!hint.contains("assign"), "{hint}");
        }
        for code in ["ForbiddenByRbac", "ForbiddenByPolicy", "AuthorizationFailed", ""] {
            assert_eq!(AzureErrorDetails::non_role_hint(code), None);
        }
    }
}
