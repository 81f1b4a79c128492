//! The token engine: returns cached tokens, and fetches each missing token once.

mod slots;
mod status;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use azure_core::credentials::{AccessToken, TokenRequestOptions};
use futures::future::{Either, select};
use lanyard_clock::{Backoff, ErrorHint as _, SharedClock};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::SetOnce;

use self::slots::{FetchSlot, FetchSlots};
use self::status::TokenEngineStatus;
use super::error::TokenError;
use super::request::{TokenKey, TokenRequestContext, TokenVariant, parse_scope};
use super::source::{IssuedToken, TokenSource};
use super::table::{CachedToken, TokenTable};
use crate::health::{ScopeHealth, TokenHealth};
use crate::metrics::MetricsHook;
use crate::randomness::SharedRandomness;
use crate::transport::sender::TokenTransport;
use lanyard_clock::RetryClass;

/// Supplies the tokens of one credential.
///
/// A cached token costs one load of the table, one look-up by borrowed scope and one clock reading; the hit
/// path writes no memory while the token is fresh.
pub(crate) struct TokenEngine<S> {
    shared: Arc<TokenEngineState<S>>,
}

struct TokenEngineState<S> {
    source: S,
    clock: SharedClock,
    randomness: SharedRandomness,
    metrics: Arc<dyn MetricsHook>,
    table: ArcSwap<TokenTable>,
    slots: Mutex<FetchSlots>,
    status: Mutex<TokenEngineStatus>,
}

type FetchOutcome = Result<Arc<CachedToken>, TokenError>;

/// The outcome of one fetch, shared by its task and by every caller that waits for it.
type SharedFetchOutcome = Arc<SetOnce<FetchOutcome>>;

/// A fetch in flight: its key and the outcome that its callers wait for.
struct InFlightFetch {
    key: TokenKey,
    epoch: u64,
    consecutive_failures: u32,
    outcome: SharedFetchOutcome,
}

impl Drop for InFlightFetch {
    /// Wakes the callers of a fetch that ends early, because its runtime shut down or its source panicked.
    fn drop(&mut self) {
        // An error means that the outcome is already set.
        self.outcome.set(Err(TokenError::Abandoned)).ok();
    }
}

/// The reason for a fetch, which determines when a fetch has become unnecessary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FetchReason {
    /// No usable token was cached.
    Missing,
    /// The token was due for renewal.
    RefreshDue,
    /// The token must be replaced regardless of its age.
    Forced,
}

enum FetchJoin {
    Ready(Arc<CachedToken>),
    Waiting(SharedFetchOutcome),
}

static DEFAULT_VARIANT: TokenVariant = TokenVariant::PLAIN;

impl<S: TokenSource> TokenEngine<S> {
    pub(crate) fn new(source: S, transport: &TokenTransport) -> Self {
        let shared = TokenEngineState {
            source,
            clock: Arc::clone(transport.clock()),
            randomness: Arc::clone(transport.randomness()),
            metrics: Arc::clone(transport.metrics()),
            table: ArcSwap::from_pointee(TokenTable::default()),
            slots: Mutex::default(),
            status: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn source(&self) -> &S {
        &self.shared.source
    }

    /// Returns a token in the form of `azure_core`. A cached token costs two allocations: the future and the
    /// copy of the token.
    pub(crate) async fn access_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let context = TokenRequestContext::of(options.as_ref());
        let variant = context.map_or(&DEFAULT_VARIANT, |context| &context.variant);
        if let [scope] = scopes
            && let Some(token) =
                self.with_cached_token(scope, variant, CachedToken::to_access_token)
        {
            return Ok(token);
        }
        let time_limit = context.and_then(TokenRequestContext::timeout);
        let waiting = Box::pin(self.shared.wait_for_token(scopes, variant, time_limit));
        Ok(waiting.await?)
    }

    /// Passes a cached token to `read` without allocating. Returns `None` if no usable token is cached.
    /// Starts a background renewal if one is due.
    pub(crate) fn with_cached_token<R>(
        &self,
        scope: &str,
        variant: &TokenVariant,
        read: impl FnOnce(&CachedToken) -> R,
    ) -> Option<R> {
        let table = self.shared.table.load();
        let token = table.find(scope, variant)?;
        let now = self.shared.clock.monotonic();
        if !token.is_usable(now) {
            return None;
        }
        if token.claim_refresh(now, REFRESH_RETRY_INTERVAL) {
            self.shared.start_refresh(&TokenKey::new(scope, variant));
        }
        Some(read(token))
    }

    /// The keys of all cached tokens.
    pub(crate) fn cached_keys(&self) -> Vec<TokenKey> {
        self.shared.table.load().iter().map(|(key, _)| key).collect()
    }

    /// Replaces the token of `key`, regardless of its age, by one that was requested with the key of
    /// `generation` or a later one, and waits for the outcome. Such a request uses an older key only after
    /// the newer one was rejected.
    pub(crate) async fn renew(&self, key: &TokenKey, generation: u64) -> Result<(), TokenError> {
        // A fetch in flight may have started with an older key: its outcome does not count.
        if let Some(outcome) = self.shared.in_flight_outcome(key)
            && let Ok(token) = outcome.wait().await
            && token.generation >= generation
        {
            return Ok(());
        }
        // Any fetch that is in flight now started after the new key was published.
        self.shared.fetch_or_wait(&key.scope, &key.variant, FetchReason::Forced, |_| ()).await
    }

    /// How long the failure of the last request for `key` is still cached.
    pub(crate) fn remaining_failure_backoff(&self, key: &TokenKey) -> Option<Duration> {
        let now = self.shared.clock.monotonic();
        match self.shared.slots.lock().by_key.get(key)? {
            FetchSlot::Failed { until, .. } => Some(until.saturating_sub(now)),
            FetchSlot::InFlight(_) => None,
        }
    }

    /// Drops all tokens, because the identity has changed. Callers that wait for a token still receive it,
    /// but it is not cached.
    pub(crate) fn drop_tokens(&self) {
        let mut slots = self.shared.slots.lock();
        self.shared.table.rcu(|table| table.next_epoch());
        slots.by_key.clear();
        drop(slots);
        self.shared.status.lock().forget_errors();
    }

    /// Clears cached failures, because their cause may be fixed.
    pub(crate) fn forget_failures(&self) {
        self.shared.slots.lock().by_key.retain(|_, slot| matches!(slot, FetchSlot::InFlight(_)));
    }

    /// Reports the cached tokens and the results of token requests.
    pub(crate) fn health(&self) -> TokenHealth {
        let now = self.shared.clock.monotonic();
        let table = self.shared.table.load();
        let mut scopes: Vec<ScopeHealth> =
            table.iter().map(|(key, token)| ScopeHealth::observe(&key, token, now)).collect();
        scopes.sort_by(|a, b| (&a.scope, &a.tenant).cmp(&(&b.scope, &b.tenant)));
        self.shared.status.lock().health(scopes)
    }
}

impl<S: TokenSource> TokenEngineState<S> {
    async fn wait_for_token(
        self: &Arc<Self>,
        scopes: &[&str],
        variant: &TokenVariant,
        time_limit: Option<Duration>,
    ) -> Result<AccessToken, TokenError> {
        let scope = parse_scope(scopes)?;
        let read = CachedToken::to_access_token;
        let fetched = pin!(self.fetch_or_wait(scope, variant, FetchReason::Missing, read));
        let outcome = match time_limit {
            None => fetched.await,
            Some(time_limit) => match select(fetched, self.clock.sleep(time_limit)).await {
                Either::Left((outcome, _)) => outcome,
                Either::Right(_) => Err(TokenError::CallerTimeout { timeout: time_limit }),
            },
        };
        // In the last seconds of a token's lifetime, an old token is better than an error.
        outcome.or_else(|error| self.fallback_token(scope, variant).ok_or(error))
    }

    /// Fetches a token, or joins the fetch in flight, and passes it to `read`. Thousands of callers may wait:
    /// each uses little memory and takes no reference count on the token.
    async fn fetch_or_wait<R>(
        self: &Arc<Self>,
        scope: &str,
        variant: &TokenVariant,
        need: FetchReason,
        read: impl FnOnce(&CachedToken) -> R,
    ) -> Result<R, TokenError> {
        // A fetch is abandoned when its runtime shuts down; a caller on another runtime then retries it once.
        for _ in 0..2 {
            let joined = self.join_or_start(&TokenKey::new(scope, variant), need)?;
            let outcome = match joined {
                FetchJoin::Ready(token) => return Ok(read(&token)),
                FetchJoin::Waiting(outcome) => outcome,
            };
            match outcome.wait().await {
                Ok(token) => return Ok(read(token)),
                Err(TokenError::Abandoned) => {}
                Err(error) => return Err(error.clone()),
            }
        }
        Err(TokenError::Abandoned)
    }

    fn fallback_token(&self, scope: &str, variant: &TokenVariant) -> Option<AccessToken> {
        let now = self.clock.monotonic();
        let table = self.table.load();
        let token = table.find(scope, variant).filter(|token| token.is_alive(now))?;
        Some(token.to_access_token())
    }

    fn start_refresh(self: &Arc<Self>, key: &TokenKey) {
        if let Err(error) = self.join_or_start(key, FetchReason::RefreshDue) {
            tracing::debug!(scope = &*key.scope, %error, "token renewal did not begin");
        }
    }

    fn in_flight_outcome(&self, key: &TokenKey) -> Option<SharedFetchOutcome> {
        match self.slots.lock().by_key.get(key)? {
            FetchSlot::InFlight(outcome) => Some(Arc::clone(outcome)),
            FetchSlot::Failed { .. } => None,
        }
    }

    /// Joins the fetch in flight for `key`, or starts one in a detached task, so that it continues if the
    /// first caller is dropped.
    fn join_or_start(
        self: &Arc<Self>,
        key: &TokenKey,
        need: FetchReason,
    ) -> Result<FetchJoin, TokenError> {
        let mut slots = self.slots.lock();
        let now = self.clock.monotonic();
        let mut streak = 0;
        match slots.by_key.get(key) {
            // A fetch whose outcome is set, but which still holds its slot, was abandoned.
            Some(FetchSlot::InFlight(outcome)) if !outcome.initialized() => {
                return Ok(FetchJoin::Waiting(Arc::clone(outcome)));
            }
            Some(FetchSlot::Failed { until, error, .. })
                if now < *until && need != FetchReason::Forced =>
            {
                return Err(error.clone());
            }
            Some(FetchSlot::Failed { consecutive_failures: failed, .. }) => streak = *failed,
            Some(FetchSlot::InFlight(_)) | None => {}
        }
        let table = self.table.load();
        // Another fetch may have finished between the caller's look-up and this lock.
        if let Some(token) = table.find(&key.scope, &key.variant) {
            let unneeded = match need {
                FetchReason::Missing => token.is_usable(now),
                FetchReason::RefreshDue => now < token.lifetime.refresh_at,
                FetchReason::Forced => false,
            };
            if unneeded {
                return Ok(FetchJoin::Ready(Arc::clone(token)));
            }
        }
        let runtime = Handle::try_current().or(Err(TokenError::NoRuntime))?;
        let outcome = SharedFetchOutcome::default();
        slots.by_key.insert(key.clone(), FetchSlot::InFlight(Arc::clone(&outcome)));
        let (key, epoch) = (key.clone(), table.epoch);
        let fetch = InFlightFetch {
            key,
            epoch,
            consecutive_failures: streak,
            outcome: Arc::clone(&outcome),
        };
        drop(runtime.spawn(Arc::clone(self).run_fetch(fetch)));
        Ok(FetchJoin::Waiting(outcome))
    }

    async fn run_fetch(self: Arc<Self>, fetch: InFlightFetch) {
        let outcome = match self.source.fetch_token(&fetch.key).await {
            Ok(issued) => Ok(self.store_token(&fetch, issued)),
            Err(error) => Err(self.record_failure(&fetch, error)),
        };
        fetch.outcome.set(outcome).ok();
    }

    fn store_token(&self, fetch: &InFlightFetch, issued: IssuedToken) -> Arc<CachedToken> {
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        let generation = issued.generation;
        let chance = self.randomness.fraction();
        let token = Arc::new(CachedToken::new(issued, now, monotonic, chance));
        let (scope, variant) = (&*fetch.key.scope, &fetch.key.variant);
        let renewed = {
            let mut slots = self.slots.lock();
            let renewed = self.table.load().find(scope, variant).is_some();
            self.table.rcu(|table| {
                if table.epoch == fetch.epoch {
                    Arc::new(table.with_token(&fetch.key, Arc::clone(&token), monotonic))
                } else {
                    Arc::clone(table)
                }
            });
            slots.remove_in_flight(fetch);
            renewed
        };
        self.status.lock().record_issued(&fetch.key, generation, renewed);
        tracing::debug!(scope, generation, expires_on = %token.expires_on, "token issued");
        token
    }

    fn record_failure(&self, fetch: &InFlightFetch, error: TokenError) -> TokenError {
        let monotonic = self.clock.monotonic();
        let streak = fetch.consecutive_failures.saturating_add(1);
        let until = monotonic.saturating_add(self.failure_backoff(&error, streak));
        if let Some(token) = self.table.load().find(&fetch.key.scope, &fetch.key.variant) {
            token.postpone_refresh(until);
        }
        {
            let mut slots = self.slots.lock();
            if slots.remove_in_flight(fetch) {
                slots.prune_expired_failures(monotonic);
                let failed =
                    FetchSlot::Failed { until, error: error.clone(), consecutive_failures: streak };
                slots.by_key.insert(fetch.key.clone(), failed);
            }
        }
        self.status.lock().record_failed(&fetch.key, &error, self.clock.now());
        self.metrics.token_failed(&error);
        let (scope, hint) = (&*fetch.key.scope, error.hint());
        // As an `Error` value it is logged with its causes, for example an untrusted server certificate.
        let cause: &dyn std::error::Error = &error;
        tracing::warn!(scope, error = cause, hint = hint.as_deref(), "no token");
        error
    }

    /// How long a failure is cached for all callers: short at first, longer while it repeats, and never
    /// beyond the service's own retry delay.
    fn failure_backoff(&self, error: &TokenError, streak: u32) -> Duration {
        let memory = FAILURE_BACKOFF.delay_with_jitter(streak, self.randomness.fraction());
        match error.retry_class() {
            RetryClass::Throttled { after: Some(after) } => memory.min(after),
            _ => memory,
        }
    }
}

impl<S: TokenSource> fmt::Debug for TokenEngine<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.shared.table.load().iter().count();
        formatter
            .debug_struct("TokenEngine")
            .field("source", &self.shared.source)
            .field("tokens", &tokens)
            .finish_non_exhaustive()
    }
}

/// The pause between two attempts to renew a token in the background.
const REFRESH_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// How long a failure is cached.
const FAILURE_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

#[cfg(test)]
mod tests;
