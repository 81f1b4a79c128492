//! RSA keys that are generated before they are needed.
//!
//! Generating a key takes 50 to 300 milliseconds, and a vault creates a certificate within one request. An
//! emulator with a seed does not use them: see `reproducible_keys`.

use std::sync::{Arc, LazyLock, Weak};

use lanyard_emulator_state::keys::{RsaKey, RsaKeySize};
use parking_lot::Mutex;

/// The number of keys in reserve.
const CAPACITY: usize = 8;

/// A reserve of RSA keys of 2048 bits, the size of most certificates.
///
/// The first call of [`Self::take`] starts a thread that fills the reserve and ends when it is full, so that an
/// emulator without vault keys spends no time on it.
#[derive(Debug, Clone, Default)]
pub struct PregeneratedKeys(Arc<Mutex<KeyReserve>>);

#[derive(Debug, Default)]
struct KeyReserve {
    keys: Vec<RsaKey>,
    is_filling: bool,
}

impl PregeneratedKeys {
    /// The reserve that all emulators of this process share.
    pub(crate) fn of_process() -> Self {
        static KEYS: LazyLock<PregeneratedKeys> = LazyLock::new(PregeneratedKeys::default);
        KEYS.clone()
    }

    /// Takes a key, if one is ready, and has another one generated in its place. Does not block.
    pub fn take(&self, size: RsaKeySize) -> Option<RsaKey> {
        if size != RsaKeySize::Bits2048 {
            return None;
        }
        let mut reserve = self.0.lock();
        let key = reserve.keys.pop();
        if !reserve.is_filling {
            reserve.is_filling = true;
            drop(reserve);
            self.fill_in_background();
        }
        key
    }

    /// Returns keys that were generated and not used.
    pub(crate) fn put_back(&self, unused: Vec<(RsaKeySize, RsaKey)>) {
        let mut reserve = self.0.lock();
        let fitting = unused.into_iter().filter(|(size, _)| *size == RsaKeySize::Bits2048);
        let room = CAPACITY.saturating_sub(reserve.keys.len());
        reserve.keys.extend(fitting.map(|(_, key)| key).take(room));
    }

    fn fill_in_background(&self) {
        let reserve = Arc::downgrade(&self.0);
        let spawned = std::thread::Builder::new()
            .name("rsa-keys".to_owned())
            .spawn(move || fill_until_full(&reserve));
        if let Err(error) = spawned {
            self.0.lock().is_filling = false;
            tracing::warn!(%error, "no thread to generate keys in advance; requests wait for their keys");
        }
    }
}

fn fill_until_full(reserve: &Weak<Mutex<KeyReserve>>) {
    loop {
        let generated = RsaKey::generate();
        let Some(reserve) = reserve.upgrade() else { return };
        let mut reserve = reserve.lock();
        match generated {
            Ok(key) => reserve.keys.push(key),
            Err(error) => tracing::warn!(%error, "a key could not be generated in advance"),
        }
        if reserve.keys.len() >= CAPACITY || reserve.keys.is_empty() {
            reserve.is_filling = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_the_most_frequent_size_are_kept_in_reserve() {
        let keys = PregeneratedKeys::default();
        assert!(keys.take(RsaKeySize::Bits4096).is_none());
        assert!(!keys.0.lock().is_filling);
        let unused = (0..CAPACITY + 2).map(|_| lanyard_emulator_state::testing::client_key());
        keys.put_back(unused.map(|key| (RsaKeySize::Bits2048, key)).collect());
        keys.put_back(vec![(RsaKeySize::Bits3072, lanyard_emulator_state::testing::client_key())]);
        assert_eq!(keys.0.lock().keys.len(), CAPACITY);
        keys.0.lock().is_filling = true;
        for _ in 0..CAPACITY {
            assert!(keys.take(RsaKeySize::Bits2048).is_some());
        }
        assert!(keys.take(RsaKeySize::Bits2048).is_none());
    }
}
