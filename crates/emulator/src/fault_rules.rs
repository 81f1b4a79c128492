//! Injected faults: deterministic rules that change replies.
//!
//! A rule matches requests, skips some, affects some, and is then used up. The request log records the rule
//! of each affected request. Rules never match the control API.

use std::time::Duration;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use lanyard_vocabulary::EntraClientId;
use serde::{Deserialize, Serialize};

use crate::operations::AzureService;
use crate::request::{ServiceReply, ServiceRequest};
use crate::services::blob::server_busy_reply;

/// The fault rules in order of precedence.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct FaultRules {
    rules: Vec<FaultRule>,
}

/// A fault rule. All its conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultRule {
    /// The name in the request log; a new rule replaces an existing one of the same name.
    pub(crate) name: String,
    /// The service to match.
    #[serde(default)]
    pub(crate) service: Option<AzureService>,
    /// The exact host to match.
    #[serde(default)]
    pub(crate) host: Option<String>,
    /// The method to match.
    #[serde(default)]
    pub(crate) method: Option<String>,
    /// The path to match; `*` matches any text, including `/`.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// The client id to match in the form of a token request.
    #[serde(default)]
    pub(crate) client_id: Option<EntraClientId>,
    /// The number of matching requests to skip.
    #[serde(default)]
    pub(crate) after: u32,
    /// The number of requests to affect; all if absent.
    #[serde(default)]
    pub(crate) times: Option<u32>,
    /// The start of the rule, in emulated time.
    #[serde(default)]
    pub(crate) from: Option<Timestamp>,
    /// The end of the rule, in emulated time.
    #[serde(default)]
    pub(crate) until: Option<Timestamp>,
    /// The duration of the rule in seconds, as an alternative to `until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<u32>,
    /// Affects only requests beyond a rate, like the limit of a vault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beyond: Option<FaultRateLimit>,
    /// The effect on matching requests.
    pub(crate) effect: FaultEffect,
}

/// A request rate, counted in windows that start with their first request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultRateLimit {
    /// The number of requests within the rate in each window.
    requests: u32,
    /// The length of a window in seconds.
    seconds: u32,
    /// The latest window.
    #[serde(skip)]
    last_window: Option<RateWindow>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RateWindow {
    begins: Timestamp,
    requests: u32,
}

impl FaultRateLimit {
    /// Counts a request. Returns whether it exceeds the rate.
    fn count_and_check_exceeded(&mut self, now: Timestamp) -> bool {
        let length = SignedDuration::from_secs(i64::from(self.seconds));
        let fresh = RateWindow { begins: now, requests: 0 };
        let window = self.last_window.get_or_insert(fresh);
        if now.duration_since(window.begins) >= length {
            *window = fresh;
        }
        window.requests = window.requests.saturating_add(1);
        window.requests > self.requests
    }
}

/// The effect of a fault on a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub(crate) enum FaultEffect {
    /// 429 in the format of each service.
    Throttle {
        /// The `Retry-After` header in seconds.
        retry_after: u32,
    },
    /// A status with a JSON error or an HTML page of a gateway.
    Status {
        status: u16,
        /// Whether the body is an HTML page.
        #[serde(default)]
        html: bool,
        /// The `Retry-After` header in seconds.
        #[serde(default)]
        retry_after: Option<u32>,
    },
    /// The regular reply, delayed.
    Latency {
        /// The delay in milliseconds of the emulator's clock.
        milliseconds: u64,
    },
    /// The connection is reset without a reply.
    Reset,
    /// The token service responds with this AADSTS code.
    TokenError { code: u32 },
}

/// The effect of the first rule that affects a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FaultHit {
    pub(crate) rule_name: String,
    pub(crate) effect: FaultEffect,
}

impl FaultRules {
    pub(crate) fn rules(&self) -> &[FaultRule] {
        &self.rules
    }

    /// Adds a rule, or replaces an existing one of the same name.
    pub(crate) fn insert(&mut self, rule: FaultRule) {
        self.rules.retain(|known| known.name != rule.name);
        self.rules.push(rule);
    }

    /// Removes one rule or all rules.
    pub(crate) fn remove(&mut self, name: Option<&str>) -> usize {
        let before = self.rules.len();
        self.rules.retain(|rule| name.is_some_and(|name| name != rule.name));
        before - self.rules.len()
    }

    /// Whether there are no rules.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the fault for a request, if a rule affects it, and counts the request. Rules are tried in
    /// order, and the first that affects the request wins: a rule that skips the request, for example a limit
    /// that is not exceeded, leaves it to the next rule.
    pub(crate) fn match_request(
        &mut self,
        service: AzureService,
        request: &ServiceRequest,
        now: Timestamp,
    ) -> Option<FaultHit> {
        if service == AzureService::Control {
            return None;
        }
        let rule = self.rules.iter_mut().find_map(|rule| {
            let is_hit = rule.is_active_at(now)
                && rule.matches(service, request)
                && rule.count_and_check_hit(now);
            is_hit.then_some(rule)
        })?;
        Some(FaultHit { rule_name: rule.name.clone(), effect: rule.effect.clone() })
    }
}

impl FaultRule {
    /// Computes the rule's end from its duration. Returns an error if the rule has two ends, or an end
    /// outside the range of [`Timestamp`].
    pub(crate) fn with_resolved_end(mut self, now: Timestamp) -> Result<Self, &'static str> {
        let Some(seconds) = self.seconds.take() else { return Ok(self) };
        if self.until.is_some() {
            return Err("A rule ends by `seconds` or by `until`, not by both.");
        }
        let length = SignedDuration::from_secs(i64::from(seconds));
        let until = self.from.unwrap_or(now).checked_add(length);
        self.until = Some(until.or(Err("The rule would end beyond all times."))?);
        Ok(self)
    }

    /// Counts a matching request. Returns whether the rule affects it.
    fn count_and_check_hit(&mut self, now: Timestamp) -> bool {
        if self.beyond.as_mut().is_some_and(|rate| !rate.count_and_check_exceeded(now)) {
            return false;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        if let Some(left) = &mut self.times {
            *left -= 1;
        }
        true
    }

    fn is_active_at(&self, now: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= now) && self.until.is_none_or(|until| now < until)
    }

    fn matches(&self, service: AzureService, request: &ServiceRequest) -> bool {
        let client = || {
            let form = request.parse_form_body();
            form.into_iter().find_map(|(key, value)| (key == "client_id").then_some(value))
        };
        self.times != Some(0)
            && self.service.is_none_or(|wanted| wanted == service)
            && self.host.as_ref().is_none_or(|host| host.eq_ignore_ascii_case(&request.host))
            && self.method.as_ref().is_none_or(|method| method == request.method.as_str())
            && self.path.as_ref().is_none_or(|pattern| glob_matches(pattern, &request.path))
            && self
                .client_id
                .is_none_or(|wanted| client().is_some_and(|text| text.parse() == Ok(wanted)))
    }
}

impl FaultEffect {
    /// The reply that replaces the service's own, if the effect has one.
    pub(crate) fn replacement_reply(&self, service: AzureService) -> Option<ServiceReply> {
        match self {
            Self::Throttle { retry_after } => Some(throttled_reply(service, *retry_after)),
            Self::Status { status, html, retry_after } => {
                let status =
                    StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let reply = if *html {
                    let page = format!("<html><body><h1>{status}</h1></body></html>");
                    ServiceReply::empty(status).with_body("text/html", page)
                } else if matches!(service, AzureService::Imds | AzureService::AppService) {
                    let text = "An injected fault answered.";
                    let body = serde_json::json!({
                        "error": "injected_fault",
                        "error_description": text,
                    });
                    ServiceReply::json(status, &body)
                } else {
                    json_error_reply(status, "InternalServerError", "An injected fault answered.")
                };
                Some(match retry_after {
                    Some(seconds) => reply.with_header("retry-after", seconds.to_string()),
                    None => reply,
                })
            }
            Self::Latency { .. } | Self::Reset | Self::TokenError { .. } => None,
        }
        .map(|reply| reply.with_rejection_reason("injected fault"))
    }

    /// The delay of the reply.
    pub(crate) fn delay(&self) -> Duration {
        match self {
            Self::Latency { milliseconds } => Duration::from_millis(*milliseconds),
            _ => Duration::ZERO,
        }
    }
}

fn json_error_reply(status: StatusCode, code: &str, message: &str) -> ServiceReply {
    ServiceReply::json(
        status,
        &serde_json::json!({ "error": { "code": code, "message": message } }),
    )
}

/// Entra throttles with a body that is not JSON; the vaults and ARM have their own codes, and the Blob service
/// its own status.
fn throttled_reply(service: AzureService, retry_after: u32) -> ServiceReply {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let reply = match service {
        AzureService::Entra => ServiceReply::text(status, "Too Many Requests"),
        AzureService::KeyVault => json_error_reply(
            status,
            "Throttled",
            "Request was not processed because too many requests were received.",
        ),
        AzureService::Arm => json_error_reply(
            status,
            "SubscriptionRequestsThrottled",
            "Number of requests for the subscription exceeded the limit.",
        ),
        AzureService::Blob => server_busy_reply(),
        _ => json_error_reply(status, "TooManyRequests", "Too many requests."),
    };
    reply.with_header("retry-after", retry_after.to_string())
}

/// Whether `text` matches a pattern with `*`, ignoring case.
fn glob_matches(pattern: &str, text: &str) -> bool {
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
    fn star_matches_any_run_of_characters() {
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
            assert_eq!(glob_matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    fn rule_hits(rule: &serde_json::Value, at: &[i64]) -> Vec<bool> {
        rule_names_hit(std::slice::from_ref(rule), at).iter().map(Option::is_some).collect()
    }

    /// The names of the rules that affect requests at these seconds.
    fn rule_names_hit(rules: &[serde_json::Value], at: &[i64]) -> Vec<Option<String>> {
        let epoch = crate::testing::start_time();
        let mut faults = FaultRules::default();
        for rule in rules {
            let rule: FaultRule = serde_json::from_value(rule.clone()).unwrap();
            faults.insert(rule.with_resolved_end(epoch).unwrap());
        }
        let request = ServiceRequest {
            method: http::Method::GET,
            scheme: crate::request::RequestScheme::Https,
            host: "kv.vault.azure.net".to_owned(),
            client_ip: None,
            path: "/secrets/a".to_owned(),
            query: Vec::new(),
            headers: http::HeaderMap::new(),
            body: bytes::Bytes::new(),
        };
        let later = |seconds: &i64| epoch + SignedDuration::from_secs(*seconds);
        let hits =
            at.iter().map(|at| faults.match_request(AzureService::KeyVault, &request, later(at)));
        hits.map(|hit| hit.map(|hit| hit.rule_name)).collect()
    }

    #[test]
    fn request_below_the_rate_limit_falls_through_to_next_rule() {
        let limit = serde_json::json!({
            "name": "limit", "beyond": { "requests": 2, "seconds": 10 },
            "effect": { "type": "throttle", "retry_after": 5 },
        });
        let outage = serde_json::json!({
            "name": "outage", "seconds": 5, "effect": { "type": "status", "status": 503 },
        });
        let [limited, out] = ["limit", "outage"].map(|name| Some(name.to_owned()));
        let hits = rule_names_hit(&[limit.clone(), outage.clone()], &[0, 1, 2, 9, 10]);
        assert_eq!(hits, [out.clone(), out.clone(), limited.clone(), limited.clone(), None]);
        // A request that the outage affects does not count for the limit behind it.
        let hits = rule_names_hit(&[outage, limit], &[0, 1, 2, 9, 10, 11]);
        assert_eq!(hits, [out.clone(), out.clone(), out, None, None, limited]);
    }

    #[test]
    fn rule_with_conflicting_or_unrepresentable_end_is_rejected() {
        let effect = serde_json::json!({ "type": "reset" });
        for ends in [
            serde_json::json!({ "until": "2026-11-21T13:00:00Z" }),
            serde_json::json!({ "from": "9999-12-30T00:00:00Z" }),
        ] {
            let mut rule =
                serde_json::json!({ "name": "r", "seconds": u32::MAX, "effect": effect });
            for (key, value) in ends.as_object().unwrap() {
                rule[key] = value.clone();
            }
            let rule: FaultRule = serde_json::from_value(rule).unwrap();
            rule.with_resolved_end(crate::testing::start_time()).unwrap_err();
        }
    }

    #[test]
    fn outage_starts_and_ends_by_emulated_time() {
        let effect = serde_json::json!({ "type": "status", "status": 503 });
        let hour = serde_json::json!({ "name": "outage", "seconds": 3_600, "effect": effect });
        assert_eq!(rule_hits(&hour, &[0, 3_599, 3_600]), [true, true, false]);
        let later = serde_json::json!({
            "name": "outage", "from": "2026-11-21T12:01:00Z", "seconds": 60, "effect": effect,
        });
        assert_eq!(rule_hits(&later, &[0, 59, 60, 119, 120]), [false, false, true, true, false]);
    }

    #[test]
    fn rate_limit_hits_only_requests_above_the_rate() {
        let limit = serde_json::json!({
            "name": "limit", "host": "kv.vault.azure.net",
            "beyond": { "requests": 2, "seconds": 10 },
            "effect": { "type": "throttle", "retry_after": 5 },
        });
        let hits = rule_hits(&limit, &[0, 1, 2, 9, 10, 11, 12]);
        assert_eq!(hits, [false, false, true, true, false, false, true]);
    }
}
