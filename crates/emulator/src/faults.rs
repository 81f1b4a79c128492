//! Faults to inject: deterministic rules that change what a client sees.
//!
//! A rule matches requests, lets some pass, hits some, and is spent. Every hit is in the ledger.
//! Rules never match the control API.

use std::time::Duration;

use http::StatusCode;
use lanyard_vocabulary::ClientId;
use serde::{Deserialize, Serialize};

use crate::operations::Service;
use crate::request::{Reply, Request};

/// The rules of injected faults, in the order of their precedence.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Faults {
    rules: Vec<FaultRule>,
}

/// One rule. Every given condition must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultRule {
    /// The name in the ledger; a new rule replaces one of the same name.
    pub(crate) name: String,
    /// The service.
    #[serde(default)]
    pub(crate) service: Option<Service>,
    /// The host, exactly.
    #[serde(default)]
    pub(crate) host: Option<String>,
    /// The method.
    #[serde(default)]
    pub(crate) method: Option<String>,
    /// The path; `*` stands for any run of characters, also with `/`.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// The client id that the form of a token request names.
    #[serde(default)]
    pub(crate) client_id: Option<ClientId>,
    /// How many matching requests pass before the first hit.
    #[serde(default)]
    pub(crate) after: u32,
    /// How many requests are hit; without it, every one.
    #[serde(default)]
    pub(crate) times: Option<u32>,
    /// What happens.
    pub(crate) effect: Effect,
}

/// What a fault does to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub(crate) enum Effect {
    /// 429, as each service words it.
    Throttle {
        /// `Retry-After`, in seconds.
        retry_after: u32,
    },
    /// A status with a JSON error, or with the HTML page of a gateway.
    Status {
        /// The status.
        status: u16,
        /// Whether the body is a gateway's page.
        #[serde(default)]
        html: bool,
        /// `Retry-After`, in seconds.
        #[serde(default)]
        retry_after: Option<u32>,
    },
    /// The right reply, later.
    Latency {
        /// Milliseconds of the emulator's clock.
        milliseconds: u64,
    },
    /// The connection ends without a reply.
    Reset,
    /// The token service answers with this AADSTS code.
    TokenError {
        /// The code.
        code: u32,
    },
}

/// What the first matching rule does with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hit {
    /// The name of the rule.
    pub(crate) rule: String,
    /// What it does.
    pub(crate) effect: Effect,
}

impl Faults {
    /// The rules.
    pub(crate) fn rules(&self) -> &[FaultRule] {
        &self.rules
    }

    /// Adds a rule, or replaces the one of the same name.
    pub(crate) fn insert(&mut self, rule: FaultRule) {
        self.rules.retain(|known| known.name != rule.name);
        self.rules.push(rule);
    }

    /// Takes a rule away, or all of them.
    pub(crate) fn remove(&mut self, name: Option<&str>) -> usize {
        let before = self.rules.len();
        self.rules.retain(|rule| name.is_some_and(|name| name != rule.name));
        before - self.rules.len()
    }

    /// Whether any rule exists: the common case costs nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The hit on a request, if a rule has one left. It is counted.
    pub(crate) fn strike(&mut self, service: Service, request: &Request) -> Option<Hit> {
        if service == Service::Control {
            return None;
        }
        let rule = self.rules.iter_mut().find(|rule| rule.matches(service, request))?;
        if rule.after > 0 {
            rule.after -= 1;
            return None;
        }
        if let Some(left) = &mut rule.times {
            *left -= 1;
        }
        Some(Hit { rule: rule.name.clone(), effect: rule.effect.clone() })
    }
}

impl FaultRule {
    fn matches(&self, service: Service, request: &Request) -> bool {
        let client = || {
            let form = request.form();
            form.into_iter().find_map(|(key, value)| (key == "client_id").then_some(value))
        };
        self.times != Some(0)
            && self.service.is_none_or(|wanted| wanted == service)
            && self.host.as_ref().is_none_or(|host| host.eq_ignore_ascii_case(&request.host))
            && self.method.as_ref().is_none_or(|method| method == request.method.as_str())
            && self.path.as_ref().is_none_or(|pattern| glob(pattern, &request.path))
            && self
                .client_id
                .is_none_or(|wanted| client().is_some_and(|text| text.parse() == Ok(wanted)))
    }
}

impl Effect {
    /// The reply that replaces the service's own, if this effect has one.
    pub(crate) fn reply(&self, service: Service) -> Option<Reply> {
        match self {
            Self::Throttle { retry_after } => Some(throttled(service, *retry_after)),
            Self::Status { status, html, retry_after } => {
                let status =
                    StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let reply = if *html {
                    let page = format!("<html><body><h1>{status}</h1></body></html>");
                    Reply::empty(status).with_body("text/html", page)
                } else {
                    envelope(status, "InternalServerError", "An injected fault answered.")
                };
                Some(match retry_after {
                    Some(seconds) => reply.with_header("retry-after", seconds.to_string()),
                    None => reply,
                })
            }
            Self::Latency { .. } | Self::Reset | Self::TokenError { .. } => None,
        }
        .map(|reply| reply.because("injected fault"))
    }

    /// How long the reply is held back.
    pub(crate) fn delay(&self) -> Duration {
        match self {
            Self::Latency { milliseconds } => Duration::from_millis(*milliseconds),
            _ => Duration::ZERO,
        }
    }
}

fn envelope(status: StatusCode, code: &str, message: &str) -> Reply {
    Reply::json(status, &serde_json::json!({ "error": { "code": code, "message": message } }))
}

/// Entra throttles with a body that is no JSON; the vaults and ARM have codes of their own.
fn throttled(service: Service, retry_after: u32) -> Reply {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let reply = match service {
        Service::Entra => Reply::text(status, "Too Many Requests"),
        Service::KeyVault => envelope(
            status,
            "Throttled",
            "Request was not processed because too many requests were received.",
        ),
        Service::Arm => envelope(
            status,
            "SubscriptionRequestsThrottled",
            "Number of requests for the subscription exceeded the limit.",
        ),
        _ => envelope(status, "TooManyRequests", "Too many requests."),
    };
    reply.with_header("retry-after", retry_after.to_string())
}

/// Whether `text` fits a pattern with `*`, without case.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_ascii_lowercase(), text.to_ascii_lowercase());
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<_> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        let Some(found) = rest.find(piece) else { return false };
        rest = &rest[found + piece.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        let cases = [
            ("*", "/anything", true),
            ("/secrets/*", "/Secrets/a/b", true),
            ("/secrets/*", "/secrets", false),
            ("*/secrets/*/x", "/a/secrets/b/x", true),
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("/a*a", "/a", false),
            ("/a*b*c", "/a-c-b-c", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }
}
