//! Appends a suffix to the user agent of requests.

use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::http::headers::USER_AGENT;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request};

/// A user agent suffix: visible ASCII and single spaces in between, so that no setting can inject a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserAgentSuffix(String);

/// A text is not a valid user agent suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not 1 to {LONGEST} visible ASCII characters, with spaces between them")]
pub struct ParseUserAgentError;

impl FromStr for UserAgentSuffix {
    type Err = ParseUserAgentError;

    fn from_str(text: &str) -> Result<Self, ParseUserAgentError> {
        let text = text.trim();
        let shown = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if shown && (1..=LONGEST).contains(&text.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseUserAgentError)
        }
    }
}

/// The pipeline policy that appends the suffix.
#[derive(Debug)]
pub(crate) struct AppendUserAgentPolicy(UserAgentSuffix);

impl AppendUserAgentPolicy {
    pub(crate) fn new(suffix: UserAgentSuffix) -> Self {
        Self(suffix)
    }
}

#[async_trait]
impl Policy for AppendUserAgentPolicy {
    #[expect(elided_lifetimes_in_paths, reason = "the trait binds the lifetime late")]
    async fn send(
        &self,
        context: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        let Some((first, rest)) = next.split_first() else {
            let message = "the pipeline ends before its transport";
            return Err(azure_core::Error::with_message(ErrorKind::Other, message));
        };
        let user_agent = request.headers().get_optional_str(&USER_AGENT).unwrap_or_default();
        // The response to a challenge sends the same request again.
        if !user_agent.ends_with(&self.0.0) {
            let user_agent = format!("{user_agent} {}", self.0.0);
            request.insert_header(USER_AGENT, user_agent.trim_start().to_owned());
        }
        first.send(context, request, rest).await
    }
}

const LONGEST: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_agent_suffix_cannot_inject_a_header() {
        for good in ["aks/1.2", "a b", " trimmed "] {
            assert!(good.parse::<UserAgentSuffix>().is_ok(), "{good}");
        }
        for bad in ["", "  ", "a\r\nx: y", "ä", &"a".repeat(129)] {
            assert_eq!(bad.parse::<UserAgentSuffix>(), Err(ParseUserAgentError), "{bad}");
        }
    }
}
