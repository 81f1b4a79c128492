//! Injected faults: deterministic rules that change replies.
//!
//! A rule matches requests, skips some, affects some, and is then used up. The request log records the rule
//! of each affected request. Rules never match the control API.

mod effect;
mod provider_limits;
mod rate_limit;
mod reply_change;
mod token_bucket;

use std::cell::OnceCell;

use jiff::{SignedDuration, Timestamp};
use lanyard_vocabulary::EntraClientId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

pub use self::effect::{
    CertificateProblem, ErrorFormat, FaultEffect, FaultPhase, ReplyDelivery, ResetTime,
};
pub use self::provider_limits::ThrottlingProvider;
use self::rate_limit::{PublishedLimits, RateLimit, TokenBucketLimit};
pub use self::reply_change::ReplyChange;
use crate::azure_service::AzureService;
use crate::jose::UnverifiedToken;
use crate::json_error::{JsonError, from_json_value};
use crate::request::ServiceRequest;

/// The fault rules in order of precedence.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FaultRules {
    rules: Vec<FaultRule>,
}

/// A fault rule. It matches the requests that meet all conditions that the rule has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultRule {
    /// The name in the request log; a new rule replaces an existing one of the same name.
    pub name: String,
    /// The service to match.
    #[serde(default)]
    pub service: Option<AzureService>,
    /// The exact host to match.
    #[serde(default)]
    pub host: Option<String>,
    /// The method to match.
    #[serde(default)]
    pub method: Option<String>,
    /// The path to match; `*` matches any text, including `/`.
    #[serde(default)]
    pub path: Option<String>,
    /// The exact `api-version` of the query to match.
    // The aliases are the names in states and files of earlier versions.
    #[serde(default, alias = "api_version", skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The client id to match in the form of a token request.
    #[serde(default, alias = "client_id")]
    pub client_id: Option<EntraClientId>,
    /// The object id or client id to match: that of the bearer token, or the client id of a token request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Uuid>,
    /// The number of matching requests to skip.
    #[serde(default)]
    pub after: u32,
    /// The number of requests to affect; all if absent.
    #[serde(default)]
    pub times: Option<u32>,
    /// Affects only every n-th matching request, starting with the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u32>,
    /// Affects this share of the matching requests. The same rule affects the same ones in each run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u32>,
    /// Varies which requests `percent` selects, and the jitter of delays.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seed: u64,
    /// The start of the rule, in emulated time.
    #[serde(default)]
    pub from: Option<Timestamp>,
    /// The end of the rule, in emulated time.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// The duration of the rule in seconds, as an alternative to `until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// Affects only requests beyond a rate, counted in windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<RateLimit>,
    /// Affects only requests for which a token bucket has no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bucket: Option<TokenBucketLimit>,
    /// Affects only requests beyond the limits that Azure publishes for the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<PublishedLimits>,
    /// The effect on matching requests.
    pub effect: FaultEffect,
    /// The number of matching requests so far, without the skipped ones.
    #[serde(skip)]
    matches: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The effect of the first rule that affects a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultHit {
    pub rule_name: String,
    pub effect: FaultEffect,
    /// How long the rate limit of the rule rejects further requests; `None` without a rate limit.
    pub wait: Option<SignedDuration>,
    /// The resource provider whose published limit the request exceeds.
    pub provider: Option<ThrottlingProvider>,
    /// A number from 0 to 9,999, which depends on the rule and the number of the request only.
    pub draw: u32,
}

impl FaultRules {
    pub fn rules(&self) -> &[FaultRule] {
        &self.rules
    }

    /// Adds a rule, or replaces an existing one of the same name.
    pub fn insert(&mut self, rule: FaultRule) {
        self.rules.retain(|known| known.name != rule.name);
        self.rules.push(rule);
    }

    pub fn contains(&self, name: &str) -> bool {
        self.rules.iter().any(|rule| rule.name == name)
    }

    /// Removes a rule, if it exists.
    pub fn remove(&mut self, name: &str) {
        self.rules.retain(|rule| rule.name != name);
    }

    /// Removes every rule.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a rule has an effect on this part of connections.
    pub fn affect(&self, phase: FaultPhase) -> bool {
        self.rules.iter().any(|rule| rule.effect.phase() == phase)
    }

    /// Returns the fault for a request, if a rule affects it, and counts the request. Rules are tried in
    /// order, and the first that affects the request wins: a rule that skips the request, for example a limit
    /// that is not exceeded, leaves it to the next rule.
    pub fn match_request(
        &mut self,
        service: AzureService,
        request: &ServiceRequest,
        now: Timestamp,
    ) -> Option<FaultHit> {
        if service == AzureService::Control {
            return None;
        }
        let subject = RequestSubject::new(request);
        self.rules
            .iter_mut()
            .filter(|rule| rule.effect.phase() == FaultPhase::Request)
            .filter(|rule| rule.is_active_at(now) && rule.matches(service, request, &subject))
            .find_map(|rule| rule.count_and_check_hit(service, request, &subject, now))
    }

    /// Returns the fault for the TLS handshake with a host, if a rule affects it.
    pub fn match_handshake(
        &mut self,
        service: AzureService,
        host: &str,
        now: Timestamp,
    ) -> Option<(String, CertificateProblem)> {
        let rule = self.match_connection(FaultPhase::Handshake, service, host, now)?;
        Some((rule.name.clone(), rule.effect.certificate_problem()?))
    }

    /// Returns the name of the rule that affects the tunnel to a host, if any.
    pub fn match_tunnel(
        &mut self,
        service: AzureService,
        host: &str,
        now: Timestamp,
    ) -> Option<String> {
        let rule = self.match_connection(FaultPhase::Tunnel, service, host, now)?;
        Some(rule.name.clone())
    }

    /// Returns the first rule of a phase that affects a connection to a host, and counts the connection.
    fn match_connection(
        &mut self,
        phase: FaultPhase,
        service: AzureService,
        host: &str,
        now: Timestamp,
    ) -> Option<&FaultRule> {
        let mut matching = self.rules.iter_mut().filter(|rule| {
            rule.effect.phase() == phase
                && rule.is_active_at(now)
                && rule.matches_connection(service, host)
        });
        matching.find_map(|rule| rule.count_selected().map(|_| &*rule))
    }
}

/// The longest body that is searched for the client id of a token request.
const LONGEST_FORM_BYTES: usize = 64 << 10;

/// The principal of a request, as far as the request names one. Nothing is verified. Token and form are parsed
/// when the first rule needs them.
#[derive(Debug)]
struct RequestSubject<'a> {
    request: &'a ServiceRequest,
    token: OnceCell<Option<UnverifiedToken>>,
    form_client_id: OnceCell<Option<EntraClientId>>,
}

impl<'a> RequestSubject<'a> {
    const fn new(request: &'a ServiceRequest) -> Self {
        Self { request, token: OnceCell::new(), form_client_id: OnceCell::new() }
    }

    /// The bearer token.
    fn token(&self) -> Option<&UnverifiedToken> {
        let token = self.token.get_or_init(|| {
            let (scheme, token) = self.request.header("authorization")?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| UnverifiedToken::parse(token.trim()))?
        });
        token.as_ref()
    }

    /// The ids of the bearer token: `oid`, and `appid` or `azp`.
    fn token_ids(&self) -> impl Iterator<Item = Uuid> {
        let claim = |name| self.token()?.text_claim(name)?.parse().ok();
        ["oid", "appid", "azp"].into_iter().filter_map(claim)
    }

    /// The tenant of the bearer token.
    fn tenant(&self) -> &str {
        self.token().and_then(|token| token.text_claim("tid")).unwrap_or_default()
    }

    /// The `client_id` of a token request.
    fn form_client_id(&self) -> Option<EntraClientId> {
        *self.form_client_id.get_or_init(|| {
            if self.request.body.len() > LONGEST_FORM_BYTES {
                return None;
            }
            let form = self.request.parse_form_body();
            form.into_iter()
                .find_map(|(key, value)| if key == "client_id" { value.parse().ok() } else { None })
        })
    }

    fn is_principal(&self, wanted: Uuid) -> bool {
        self.token_ids().any(|id| id == wanted)
            || self.form_client_id() == Some(EntraClientId::from(wanted))
    }

    /// A text that differs between principals, for limits per principal.
    fn key(&self) -> String {
        let client = || self.form_client_id().map(|client| client.to_string());
        self.token_ids().next().map(|id| id.to_string()).or_else(client).unwrap_or_default()
    }
}

impl FaultRule {
    /// Parses a rule from JSON.
    ///
    /// # Errors
    ///
    /// Returns an error that names an unknown field or value, or conditions that contradict each other.
    pub fn from_json(json: Value) -> Result<Self, FaultRuleError> {
        let rule: Self = from_json_value(json).map_err(FaultRuleError::Json)?;
        rule.check()?;
        Ok(rule)
    }

    /// Checks the rule, and replaces its duration (`seconds`) by its end (`until`).
    pub fn with_resolved_end(mut self, now: Timestamp) -> Result<Self, FaultRuleError> {
        self.check()?;
        let Some(seconds) = self.seconds.take() else { return Ok(self) };
        let length = SignedDuration::from_secs(i64::from(seconds));
        let until = self.from.unwrap_or(now).checked_add(length);
        let invalid = FaultRuleError::Invalid("`seconds` is too large.");
        self.until = Some(until.or(Err(invalid))?);
        Ok(self)
    }

    /// Rejects invalid values, and conditions that contradict each other.
    pub fn check(&self) -> Result<(), FaultRuleError> {
        let limits = [self.beyond.is_some(), self.bucket.is_some(), self.limits.is_some()];
        let problems = [
            (self.name.is_empty(), "The rule has no name."),
            // Clients remove such a segment from the path of `DELETE faults/{name}`.
            (matches!(self.name.as_str(), "." | ".."), "`name` cannot be `.` or `..`."),
            (
                self.service == Some(AzureService::Control),
                "`service` cannot be `control`: rules never match the control API.",
            ),
            (
                self.method.as_ref().is_some_and(|it| it.contains(|c: char| c.is_lowercase())),
                "`method` must be in upper case, such as `GET`.",
            ),
            (
                self.seconds.is_some() && self.until.is_some(),
                "A rule must not have both `seconds` and `until`.",
            ),
            (
                self.seconds == Some(0)
                    || self.beyond.as_ref().is_some_and(RateLimit::has_no_length)
                    || self.bucket.as_ref().is_some_and(TokenBucketLimit::has_no_length),
                "`seconds` must be at least 1.",
            ),
            (
                self.from.zip(self.until).is_some_and(|(from, until)| until <= from),
                "`until` must be later than `from`.",
            ),
            (self.every == Some(0), "`every` must be at least 1."),
            (
                self.percent.is_some_and(|percent| !(1..=100).contains(&percent)),
                "`percent` must be a number from 1 to 100.",
            ),
            (
                limits.into_iter().filter(|is_set| *is_set).count() > 1,
                "A rule must not have more than one of `beyond`, `bucket` and `limits`.",
            ),
        ];
        if let Some((_, problem)) = problems.into_iter().find(|(is_present, _)| *is_present) {
            return Err(FaultRuleError::Invalid(problem));
        }
        if self.effect.phase() != FaultPhase::Request
            && let Some(condition) = self.request_condition()
        {
            return Err(FaultRuleError::RequestCondition { condition });
        }
        if matches!(self.effect, FaultEffect::TokenError { .. }) && !self.selects_token_requests() {
            return Err(FaultRuleError::Invalid(
                "A rule with `token-error` has the `service` `entra` or a `clientId`, because only \
                 the token service returns such errors.",
            ));
        }
        self.effect.check().map_err(FaultRuleError::Invalid)
    }

    /// Whether the rule matches requests to the token service only.
    fn selects_token_requests(&self) -> bool {
        match self.service {
            Some(service) => service == AzureService::Entra,
            None => self.client_id.is_some(),
        }
    }

    /// The name of a condition that only requests can meet, if the rule has one.
    fn request_condition(&self) -> Option<&'static str> {
        let conditions = [
            ("method", self.method.is_some()),
            ("path", self.path.is_some()),
            ("apiVersion", self.api_version.is_some()),
            ("clientId", self.client_id.is_some()),
            ("principal", self.principal.is_some()),
            ("beyond", self.beyond.is_some()),
            ("bucket", self.bucket.is_some()),
            ("limits", self.limits.is_some()),
        ];
        conditions.into_iter().find_map(|(name, is_set)| is_set.then_some(name))
    }

    /// Counts a matching request. Returns the hit if the rule affects it.
    fn count_and_check_hit(
        &mut self,
        service: AzureService,
        request: &ServiceRequest,
        subject: &RequestSubject<'_>,
        now: Timestamp,
    ) -> Option<FaultHit> {
        let (mut wait, mut provider) = (None, None);
        if let Some(rate) = &mut self.beyond {
            wait = Some(rate.count_and_check_exceeded(now)?);
        }
        if let Some(bucket) = &mut self.bucket {
            wait = Some(bucket.take_token(&request.host, &subject.key(), now)?);
        }
        if let Some(limits) = &mut self.limits {
            let (principal, tenant) = (subject.key(), subject.tenant());
            let exceeded = limits.take_token(service, request, &principal, tenant, now)?;
            (wait, provider) = (Some(exceeded.wait), exceeded.provider);
        }
        let draw = self.count_selected()?;
        let (rule_name, effect) = (self.name.clone(), self.effect.clone());
        Some(FaultHit { rule_name, effect, wait, provider, draw })
    }

    /// Counts a request that all other conditions select. Returns the random number of the request if `after`,
    /// `every`, `percent` and `times` select it as well.
    fn count_selected(&mut self) -> Option<u32> {
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        let number = self.matches;
        self.matches += 1;
        let draw = self.draw(number);
        let is_selected = self.every.is_none_or(|every| number.is_multiple_of(u64::from(every)))
            && self.percent.is_none_or(|percent| draw < percent * 100);
        if !is_selected {
            return None;
        }
        if let Some(left) = &mut self.times {
            *left -= 1;
        }
        Some(draw)
    }

    /// A number from 0 to 9,999 that depends on the rule's name, its seed and the number of the request only.
    fn draw(&self, number: u64) -> u32 {
        let text = format!("{}:{}:{number}", self.name, self.seed);
        let [a, b, c, d, ..] = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).into_bytes();
        u32::from_be_bytes([a, b, c, d]) % 10_000
    }

    fn is_active_at(&self, now: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= now) && self.until.is_none_or(|until| now < until)
    }

    fn matches_connection(&self, service: AzureService, host: &str) -> bool {
        self.times != Some(0)
            && self.service.is_none_or(|wanted| wanted == service)
            && self.host.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(host))
    }

    fn matches(
        &self,
        service: AzureService,
        request: &ServiceRequest,
        subject: &RequestSubject<'_>,
    ) -> bool {
        self.matches_connection(service, &request.host)
            && self.method.as_ref().is_none_or(|method| method == request.method.as_str())
            && self.path.as_ref().is_none_or(|pattern| glob_matches(pattern, &request.path))
            && self
                .api_version
                .as_ref()
                .is_none_or(|wanted| request.query("api-version") == Some(wanted))
            && self.client_id.is_none_or(|wanted| subject.form_client_id() == Some(wanted))
            && self.principal.is_none_or(|wanted| subject.is_principal(wanted))
    }
}

/// A fault rule is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultRuleError {
    /// The JSON is not a rule.
    #[error("the fault rule is invalid: {0}")]
    Json(#[source] JsonError),
    /// The conditions contradict each other, or a value is out of range.
    #[error("{0}")]
    Invalid(&'static str),
    /// The effect precedes the request that the condition is about.
    #[error(
        "`{condition}` is a condition of requests, and the effect precedes the request: select the \
         connection by `service` and `host`."
    )]
    RequestCondition { condition: &'static str },
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
mod tests;
