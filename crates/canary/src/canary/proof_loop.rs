//! The proof loop. One round checks the credential file, requests a token and makes the granted
//! call.

use std::time::Duration;

use azure_core::credentials::TokenCredential as _;
use lanyard_azure::AuthenticatedClient;
use lanyard_clock::period_with_jitter;
use lanyard_credential::KeyHealth;
use lanyard_vocabulary::Hop;
use tokio::sync::mpsc;

use super::probe_task::ProbeReport;
use super::{CanaryDependencies, CanarySettings, IdentityReporter};
use crate::call::{CallOutcome, GrantedCall};
use crate::credential::WatchedCredential;
use crate::metrics::CallResult;
use crate::proof_error::{ProofError, ProofErrorKind};
use crate::timeout::with_timeout;

/// Runs the proof rounds of a canary whose credential file is open.
#[derive(Debug)]
pub(super) struct ProofLoop {
    scope: String,
    call: Option<GrantedCall>,
    interval: Duration,
    token_interval: Duration,
    dependencies: CanaryDependencies,
    watched_credential: WatchedCredential,
    caller: AuthenticatedClient,
    /// The credential generation that Entra last issued a token for.
    proven_generation: Option<u64>,
    /// The monotonic time at which the next token is requested, even if one is cached.
    token_due: Duration,
    /// Pauses token requests while Entra throttles.
    token_backoff: ThrottleBackoff,
    /// Pauses granted calls while the service throttles.
    call_backoff: ThrottleBackoff,
    /// The newest generation that the rotation metric includes.
    counted_generation: u64,
    was_authenticated: bool,
}

impl ProofLoop {
    pub(super) fn new(
        settings: &CanarySettings,
        dependencies: CanaryDependencies,
        watched_credential: WatchedCredential,
    ) -> Self {
        Self {
            scope: settings.scope(),
            call: settings.call.clone(),
            interval: settings.interval,
            token_interval: settings.token_interval,
            caller: settings.caller(&watched_credential, &dependencies.transport),
            dependencies,
            counted_generation: watched_credential.credential.generation().number(),
            watched_credential,
            proven_generation: None,
            token_due: Duration::ZERO,
            token_backoff: ThrottleBackoff::default(),
            call_backoff: ThrottleBackoff::default(),
            was_authenticated: false,
        }
    }

    /// Runs a round every interval and after each credential rotation.
    pub(super) async fn run(
        mut self,
        reporter: &mut IdentityReporter,
        mut probed: mpsc::Receiver<ProbeReport>,
    ) {
        loop {
            self.watched_credential.load_status.mark_unchanged();
            self.prove_once(reporter).await;
            reporter.publish_facts();
            let mut pause =
                self.dependencies.clock.sleep(period_with_jitter(self.interval, fastrand::f64()));
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    Ok(()) = self.watched_credential.load_status.changed() => break,
                    Some(report) = probed.recv() => reporter.record_probe(report),
                }
            }
        }
    }

    async fn prove_once(&mut self, reporter: &mut IdentityReporter) {
        self.check_credential_file(reporter);
        let mut refused = false;
        if self.dependencies.clock.monotonic() >= self.token_backoff.until {
            let mut token = self.prove_token().await;
            if self.holds_token() {
                token = token.map_err(ProofError::into_inconclusive_if_throttled);
            }
            refused = token.as_ref().is_err_and(|error| error.kind == ProofErrorKind::Definitive);
            self.record_hop(reporter, Hop::EntraToken, token);
        } else if !self.holds_token() {
            self.record_missing_token(reporter);
        }
        let has_token = self.holds_token();
        if has_token && self.is_call_due() {
            self.make_granted_call(reporter).await;
        } else if !has_token && refused {
            // Without a token the call cannot be made, so its last result no longer holds.
            reporter.identity.clear_hop(Hop::Granted);
        }
        self.record_lapse();
    }

    /// Records that the cached token expired while the canary waits for Entra to stop throttling,
    /// with Entra's last error as the cause.
    fn record_missing_token(&self, reporter: &mut IdentityReporter) {
        if let Some(error) = self.token_backoff.last_error.clone() {
            let now = reporter.now();
            reporter.identity.record_hop(
                Hop::EntraToken,
                Err(error.into_transient_if_throttled()),
                now,
            );
        }
    }

    fn check_credential_file(&mut self, reporter: &mut IdentityReporter) {
        let generation = self.watched_credential.credential.generation().number();
        let newer = generation.saturating_sub(self.counted_generation);
        self.dependencies.metrics.record_rotations(newer);
        self.counted_generation = self.counted_generation.max(generation);
        reporter.identity.set_credential(self.watched_credential.loaded_credential());
        let error = self.watched_credential.file_error();
        self.record_hop(reporter, Hop::Credential, error.map_or(Ok(()), Err));
    }

    /// Requests a new token from Entra if one is due; otherwise gets a token that may come from the
    /// cache.
    async fn prove_token(&mut self) -> Result<(), ProofError> {
        let now = self.dependencies.clock.monotonic();
        let generation = self.watched_credential.credential.generation().number();
        let is_due = self.proven_generation != Some(generation) || now >= self.token_due;
        let credential = &self.watched_credential.credential;
        let result = if is_due {
            let request = credential.renew_token(&self.scope);
            let outcome = with_timeout(&self.dependencies.clock, TOKEN_TIMEOUT, request).await;
            outcome.map(|it| it.map_err(|error| ProofError::of_token(&error)))
        } else {
            let scope = [self.scope.as_str()];
            let request = credential.get_token(&scope, None);
            let outcome = with_timeout(&self.dependencies.clock, TOKEN_TIMEOUT, request).await;
            outcome.map(|it| it.map(drop).map_err(|error| ProofError::of_token_request(&error)))
        };
        result.unwrap_or_else(|| Err(ProofError::timed_out("Entra", TOKEN_TIMEOUT)))?;
        if is_due {
            self.proven_generation = Some(generation);
            self.token_due =
                now.saturating_add(period_with_jitter(self.token_interval, fastrand::f64()));
        }
        self.key_refusal().map_or(Ok(()), Err)
    }

    /// Returns Entra's error for the newest certificate, if Entra rejects it and the token was
    /// issued for an older one.
    fn key_refusal(&self) -> Option<ProofError> {
        let KeyHealth::Refused { error, .. } = self.watched_credential.credential.health().key
        else {
            return None;
        };
        let message = format!(
            "Entra rejected the newest certificate and accepts an older one: {}",
            error.text
        );
        let hint = error.hint.unwrap_or_else(|| "rotate the credential once more".to_owned());
        Some(ProofError::new(ProofErrorKind::Definitive, &error.code, message, hint))
    }

    fn holds_token(&self) -> bool {
        self.watched_credential.credential.with_cached_token(&self.scope, |_| ()).is_some()
    }

    fn is_call_due(&self) -> bool {
        self.call.is_some() && self.dependencies.clock.monotonic() >= self.call_backoff.until
    }

    async fn make_granted_call(&mut self, reporter: &mut IdentityReporter) {
        let Some(call) = &self.call else { return };
        let result =
            with_timeout(&self.dependencies.clock, CALL_TIMEOUT, call.send_request(&self.caller))
                .await;
        let called = result.map_or_else(
            || CallOutcome::timed_out(ProofError::timed_out(&call.describe_target(), CALL_TIMEOUT)),
            CallOutcome::from_result,
        );
        self.dependencies.metrics.record_call(called.result);
        match called.result {
            // The service rejected the token, so the next round requests a new one.
            CallResult::Unauthenticated => {
                self.token_due = Duration::ZERO;
                self.dependencies.metrics.record_token_acceptance(false);
            }
            CallResult::Granted | CallResult::Refused => {
                self.dependencies.metrics.record_token_acceptance(true);
            }
            _ => {}
        }
        let hop = match called.result {
            CallResult::NoToken => Hop::EntraToken,
            _ => Hop::Granted,
        };
        self.record_hop(reporter, hop, called.outcome);
    }

    fn record_hop(
        &mut self,
        reporter: &mut IdentityReporter,
        hop: Hop,
        outcome: Result<(), ProofError>,
    ) {
        let now = self.dependencies.clock.monotonic();
        match hop {
            Hop::EntraToken => self.token_backoff.update(&outcome, now),
            Hop::Granted => self.call_backoff.update(&outcome, now),
            _ => {}
        }
        if let Err(error) = &outcome {
            self.dependencies.metrics.record_hop_failure(hop);
            tracing::debug!(%hop, code = error.code, "{}", error.message);
        }
        let now = reporter.now();
        reporter.identity.record_hop(hop, outcome, now);
    }

    fn record_lapse(&mut self) {
        let is_authenticated = self.dependencies.metrics.is_authenticated();
        if self.was_authenticated && !is_authenticated {
            self.dependencies.metrics.record_lapse();
        }
        self.was_authenticated = is_authenticated;
    }
}

/// The back-off for a service that throttles. It grows with each consecutive throttled request,
/// because a client that returns as early as allowed is throttled again.
#[derive(Debug, Default)]
struct ThrottleBackoff {
    until: Duration,
    /// The number of consecutive throttled requests.
    throttled_count: u32,
    /// The last throttling error.
    last_error: Option<ProofError>,
}

impl ThrottleBackoff {
    fn update(&mut self, outcome: &Result<(), ProofError>, now: Duration) {
        let times = self.throttled_count.saturating_add(1);
        let error = outcome.as_ref().err();
        if let Some(pause) = error.and_then(|error| error.throttle_delay(times)) {
            *self = Self {
                until: now.saturating_add(pause),
                throttled_count: times,
                last_error: error.cloned(),
            };
        } else {
            (self.throttled_count, self.last_error) = (0, None);
        }
    }
}

/// How long a round waits for a token. The request continues in the background, and the next round
/// uses its result.
const TOKEN_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a round waits for the response to the granted call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
