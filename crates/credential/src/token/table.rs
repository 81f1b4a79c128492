//! The table of cached tokens: immutable, searched by borrowed scope, replaced as a whole.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use azure_core::credentials::{AccessToken, Secret};
use azure_core::time::OffsetDateTime;
use jiff::Timestamp;

use super::lifetime::TokenLifetime;
use super::request::{TokenKey, TokenVariant};
use super::source::IssuedToken;
use crate::secret::SecretText;

/// All cached tokens of one identity.
///
/// The `epoch` counts changes of identity (tenant, client or authority): a token that was requested in one
/// epoch is never stored in another.
#[derive(Debug, Clone, Default)]
pub(crate) struct TokenTable {
    pub(crate) epoch: u64,
    scopes: HashMap<Arc<str>, ScopeTokens, ScopeHashBuilder>,
}

/// The tokens of one scope, usually only one without claims, tenant or CAE.
#[derive(Debug, Clone, Default)]
struct ScopeTokens {
    plain: Option<Arc<CachedToken>>,
    variants: Vec<(TokenVariant, Arc<CachedToken>)>,
}

impl TokenTable {
    /// An empty table for the next identity.
    pub(crate) fn next_epoch(&self) -> Self {
        Self { epoch: self.epoch + 1, scopes: HashMap::default() }
    }

    /// Finds a token without allocating.
    pub(crate) fn find(&self, scope: &str, variant: &TokenVariant) -> Option<&Arc<CachedToken>> {
        let tokens = self.scopes.get(scope)?;
        if variant.is_plain() {
            return tokens.plain.as_ref();
        }
        tokens.variants.iter().find(|(held, _)| held == variant).map(|(_, token)| token)
    }

    /// A copy of the table with `token` for `key` and without tokens that expired before `now`.
    ///
    /// A token that was issued to satisfy claims also replaces the one without claims: the claims challenge
    /// means that the latter was revoked.
    pub(crate) fn with_token(
        &self,
        key: &TokenKey,
        token: Arc<CachedToken>,
        now: Duration,
    ) -> Self {
        let mut next = self.clone();
        next.scopes.retain(|_, tokens| tokens.retain_alive(now));
        let tokens = next.scopes.entry(Arc::clone(&key.scope)).or_default();
        if key.variant.claims.is_some() {
            tokens.insert(key.variant.without_claims(), Arc::clone(&token));
        }
        tokens.insert(key.variant.clone(), token);
        next
    }

    /// All keys with their tokens, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TokenKey, &Arc<CachedToken>)> {
        self.scopes.iter().flat_map(|(scope, tokens)| {
            let plain = tokens.plain.iter().map(|token| (TokenVariant::PLAIN, token));
            let variants = tokens.variants.iter().map(|(variant, token)| (variant.clone(), token));
            plain
                .chain(variants)
                .map(|(variant, token)| (TokenKey { scope: Arc::clone(scope), variant }, token))
        })
    }
}

impl ScopeTokens {
    fn insert(&mut self, variant: TokenVariant, token: Arc<CachedToken>) {
        if variant.is_plain() {
            self.plain = Some(token);
            return;
        }
        self.variants.retain(|(held, _)| *held != variant);
        if self.variants.len() == MAX_VARIANTS {
            self.variants.remove(0);
        }
        self.variants.push((variant, token));
    }

    fn retain_alive(&mut self, now: Duration) -> bool {
        self.plain = self.plain.take().filter(|token| token.is_alive(now));
        self.variants.retain(|(_, token)| token.is_alive(now));
        self.plain.is_some() || !self.variants.is_empty()
    }
}

/// A token and its deadlines.
#[derive(Debug)]
pub(crate) struct CachedToken {
    text: SecretText,
    pub(crate) expires_on: OffsetDateTime,
    pub(crate) lifetime: TokenLifetime,
    pub(crate) generation: u64,
    /// When the next background renewal may start, in monotonic milliseconds. It is read only after
    /// `refresh_at`, so that the hit path shares no written memory before.
    next_refresh: AtomicU64,
}

impl CachedToken {
    /// Converts an issued token. `now` is the wall time that corresponds to the monotonic time `monotonic`;
    /// `chance` is the jitter of the renewal.
    pub(crate) fn new(
        issued: IssuedToken,
        now: Timestamp,
        monotonic: Duration,
        chance: f64,
    ) -> Self {
        let IssuedToken { text, requested_at: asked_at, expires_in, refresh_in, generation } =
            issued;
        let lifetime = TokenLifetime::plan(asked_at, expires_in, refresh_in, chance);
        let left = lifetime.expires_at.saturating_sub(monotonic);
        let expires_on = wall_time(now, left);
        let next_refresh = AtomicU64::new(milliseconds(lifetime.refresh_at));
        Self { text, expires_on, lifetime, generation, next_refresh }
    }

    /// The secret text, for an `Authorization` header only.
    pub(crate) fn expose(&self) -> &str {
        self.text.expose()
    }

    /// The token as an `azure_core` type, which does not wipe its copy.
    pub(crate) fn to_access_token(&self) -> AccessToken {
        AccessToken::new(Secret::new(self.expose().to_owned()), self.expires_on)
    }

    /// Whether the token may be returned without requesting a new one first.
    pub(crate) fn is_usable(&self, now: Duration) -> bool {
        now < self.lifetime.usable_until
    }

    /// Whether the service still accepts the token.
    pub(crate) fn is_alive(&self, now: Duration) -> bool {
        now < self.lifetime.expires_at
    }

    /// Whether a background renewal is due. Returns `true` to only one caller, which has to start the
    /// renewal.
    pub(crate) fn claim_refresh(&self, now: Duration, retry_after: Duration) -> bool {
        if now < self.lifetime.refresh_at {
            return false;
        }
        let due = self.next_refresh.load(Ordering::Relaxed);
        let now = milliseconds(now);
        let next = now.saturating_add(milliseconds(retry_after));
        now >= due
            && self
                .next_refresh
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Postpones the next renewal until `at`, because the last one failed.
    pub(crate) fn postpone_refresh(&self, at: Duration) {
        self.next_refresh.fetch_max(milliseconds(at), Ordering::Relaxed);
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn wall_time(now: Timestamp, left: Duration) -> OffsetDateTime {
    let expires = now.checked_add(left).unwrap_or(Timestamp::MAX);
    OffsetDateTime::from_unix_timestamp(expires.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Hashes scopes eight bytes at a time. Scopes come from the program itself, so no protection against
/// collisions is needed.
#[derive(Debug, Clone, Copy, Default)]
struct ScopeHashBuilder;

impl BuildHasher for ScopeHashBuilder {
    type Hasher = ScopeHasher;

    fn build_hasher(&self) -> ScopeHasher {
        ScopeHasher(HASH_SEED)
    }
}

struct ScopeHasher(u64);

impl Hasher for ScopeHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let tail = rest.iter().fold(1, |word, byte| (word << 8) | u64::from(*byte));
        self.mix(tail);
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(u64::from(byte));
    }

    fn finish(&self) -> u64 {
        // The map uses the highest and the lowest bits: fold the former into the latter.
        self.0 ^ (self.0 >> 32)
    }
}

impl ScopeHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(HASH_MULTIPLIER);
    }
}

/// The maximum number of variants of one scope; the oldest is evicted, because claims of challenges never
/// repeat.
const MAX_VARIANTS: usize = 16;
/// The golden ratio in 64 bits, odd: spreads consecutive values.
const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const HASH_SEED: u64 = 0x2545_f491_4f6c_dd1d;

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str, expires_in: u64) -> Arc<CachedToken> {
        let issued = IssuedToken {
            text: SecretText::from(text),
            requested_at: Duration::ZERO,
            expires_in: Duration::from_secs(expires_in),
            refresh_in: None,
            generation: 1,
        };
        Arc::new(CachedToken::new(issued, Timestamp::UNIX_EPOCH, Duration::ZERO, 0.0))
    }

    fn key(scope: &str, variant: TokenVariant) -> TokenKey {
        TokenKey::parse(&[scope], variant).unwrap()
    }

    fn variant(tenant: &str, claims: Option<&str>) -> TokenVariant {
        TokenVariant {
            tenant: Some(tenant.parse().unwrap()),
            claims: claims.map(Into::into),
            ..TokenVariant::PLAIN
        }
    }

    #[test]
    fn tokens_of_different_variants_do_not_mix() {
        let (plain, other) = (key("s", TokenVariant::PLAIN), key("s", variant("t", None)));
        let table = TokenTable::default()
            .with_token(&plain, token("plain", 60), Duration::ZERO)
            .with_token(&other, token("other", 60), Duration::ZERO);
        assert_eq!(table.find("s", &TokenVariant::PLAIN).unwrap().expose(), "plain");
        assert_eq!(table.find("s", &other.variant).unwrap().expose(), "other");
        assert!(table.find("s", &variant("u", None)).is_none());
        assert!(table.find("S", &TokenVariant::PLAIN).is_none());
    }

    #[test]
    fn a_token_for_claims_replaces_the_revoked_one_without() {
        let table = TokenTable::default()
            .with_token(&key("s", variant("t", None)), token("revoked", 60), Duration::ZERO)
            .with_token(&key("s", variant("t", Some("{}"))), token("fresh", 60), Duration::ZERO);
        assert_eq!(table.find("s", &variant("t", None)).unwrap().expose(), "fresh");
        assert_eq!(table.find("s", &variant("t", Some("{}"))).unwrap().expose(), "fresh");
    }

    #[test]
    fn variants_per_scope_are_bounded() {
        let mut table = TokenTable::default();
        for round in 0..100 {
            let claims = format!("{{\"round\":{round}}}");
            let key = key("s", variant("t", Some(&claims)));
            table = table.with_token(&key, token("t", 60), Duration::ZERO);
        }
        assert!(table.iter().count() <= MAX_VARIANTS);
    }

    #[test]
    fn expired_tokens_are_removed_by_the_next_insert() {
        let table = TokenTable::default()
            .with_token(&key("old", TokenVariant::PLAIN), token("old", 60), Duration::ZERO)
            .with_token(
                &key("new", TokenVariant::PLAIN),
                token("new", 600),
                Duration::from_secs(61),
            );
        assert!(table.find("old", &TokenVariant::PLAIN).is_none());
        assert!(table.find("new", &TokenVariant::PLAIN).is_some());
    }

    #[test]
    fn exactly_one_caller_claims_a_due_renewal() {
        let token = token("t", 3_600);
        let pause = Duration::from_secs(30);
        assert!(!token.claim_refresh(Duration::from_secs(3_299), pause));
        assert!(token.claim_refresh(Duration::from_mins(55), pause));
        assert!(!token.claim_refresh(Duration::from_secs(3_301), pause));
        assert!(token.claim_refresh(Duration::from_secs(3_330), pause));
        token.postpone_refresh(Duration::from_secs(3_400));
        assert!(!token.claim_refresh(Duration::from_secs(3_399), pause));
        assert!(token.claim_refresh(Duration::from_secs(3_400), pause));
    }

    #[test]
    fn scopes_that_differ_in_one_byte_hash_apart() {
        let hashes: std::collections::HashSet<u64> = (0..1_000)
            .map(|number| {
                ScopeHashBuilder.hash_one(format!("https://service-{number}.example/.default"))
            })
            .collect();
        assert_eq!(hashes.len(), 1_000);
    }

    #[test]
    fn debug_output_of_a_cached_token_has_no_secret() {
        let printed = format!("{:?}", token("planted-marker", 60));
        assert!(!printed.contains("planted-marker"), "{printed}");
    }
}
