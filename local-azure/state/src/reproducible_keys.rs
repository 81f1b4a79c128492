//! Keys that are reproducible from a seed.
//!
//! The generator of aws-lc-rs takes no seed. With a seed, an RSA key is therefore the product of two primes
//! of `public_primes.txt`, and the private number of an elliptic curve key is a hash of the seed. Such keys are
//! public: they protect nothing but the emulator's own state. Without a seed every key is random.

use std::sync::LazyLock;

use aws_lc_rs::digest::{Context, SHA512, SHA512_OUTPUT_LEN};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::fill;
use aws_lc_rs::rsa::{KeyPairComponents, PublicKeyComponents};
use num_bigint::BigUint;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::id_generator::IdGenerator;
use crate::keys::{EcKey, EcKeyError, EllipticCurve, RsaKey, RsaKeyError, RsaKeySize};

/// The primes, in hexadecimal, one a line: 48 of 1024 bits, 10 of 1536 bits and 10 of 2048 bits. The two
/// highest bits of each are set, so that a product has twice the bits.
const PRIMES: &str = include_str!("reproducible_keys/public_primes.txt");
/// The public exponent of every key.
const EXPONENT: u32 = 65_537;
/// How many private numbers are tried for a curve. Almost every number is valid.
const MAX_CURVE_ATTEMPTS: usize = 8;

impl IdGenerator {
    /// The next RSA key of the seed. `None` without a seed, and after the last pair of primes: 1,128 keys of
    /// 2048 bits, and 45 of 3072 and of 4096 bits.
    pub fn next_rsa_key(&mut self, size: RsaKeySize) -> Option<Result<RsaKey, RsaKeyError>> {
        let Self::Seeded { namespace, rsa_keys, .. } = self else { return None };
        let (primes, count) = (primes_of_size(size), rsa_keys.entry(size).or_default());
        let pairs = primes.len() * primes.len().saturating_sub(1) / 2;
        let number = usize::try_from(*count).ok().filter(|number| *number < pairs)?;
        *count += 1;
        // Another seed starts with another pair.
        let start = Uuid::new_v5(namespace, &size.bits().to_be_bytes()).as_u64_pair().0;
        let start = usize::try_from(start % u64::try_from(pairs).ok()?).ok()?;
        let (first, second) = pair_of_index((start + number) % pairs);
        Some(rsa_key_of_primes(primes.get(first)?, primes.get(second)?))
    }

    /// A new RSA key of 2048 bits. Slow without a seed.
    pub fn generate_rsa_key(&mut self) -> Result<RsaKey, RsaKeyError> {
        self.next_rsa_key(RsaKeySize::Bits2048).unwrap_or_else(RsaKey::generate)
    }

    /// A new elliptic curve key.
    pub fn generate_ec_key(&mut self, curve: EllipticCurve) -> Result<EcKey, EcKeyError> {
        if *self == Self::Random {
            return EcKey::generate(curve);
        }
        (0..MAX_CURVE_ATTEMPTS)
            .find_map(|_| {
                let bytes = self.next_bytes::<{ 2 * SHA512_OUTPUT_LEN }>().ok()?;
                EcKey::from_private_number(curve, bytes.as_slice()).ok()
            })
            .ok_or(EcKeyError::Generation)
    }

    /// New secret bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the random source fails.
    pub(crate) fn next_bytes<const LENGTH: usize>(
        &mut self,
    ) -> Result<Zeroizing<[u8; LENGTH]>, Unspecified> {
        let mut bytes = Zeroizing::new([0; LENGTH]);
        match self {
            Self::Random => fill(&mut *bytes)?,
            Self::Seeded { namespace, count, .. } => {
                *count += 1;
                for (number, block) in (0_u8..).zip(bytes.chunks_mut(SHA512_OUTPUT_LEN)) {
                    let mut hash = Context::new(&SHA512);
                    hash.update(namespace.as_bytes());
                    hash.update(&count.to_be_bytes());
                    hash.update(&[number]);
                    let digest = hash.finish();
                    block.copy_from_slice(&digest.as_ref()[..block.len()]);
                }
            }
        }
        Ok(bytes)
    }
}

/// The primes of keys of a size.
fn primes_of_size(size: RsaKeySize) -> &'static [BigUint] {
    static ALL: LazyLock<[Vec<BigUint>; 3]> = LazyLock::new(|| {
        [RsaKeySize::Bits2048, RsaKeySize::Bits3072, RsaKeySize::Bits4096].map(|size| {
            let primes =
                PRIMES.lines().filter_map(|line| BigUint::parse_bytes(line.as_bytes(), 16));
            primes.filter(|prime| prime.bits() * 2 == u64::from(size.bits())).collect()
        })
    });
    let [short, middle, long] = &*ALL;
    match size {
        RsaKeySize::Bits2048 => short,
        RsaKeySize::Bits3072 => middle,
        RsaKeySize::Bits4096 => long,
    }
}

/// The pair with this index in the order (1, 0), (2, 0), (2, 1), (3, 0), …
fn pair_of_index(mut index: usize) -> (usize, usize) {
    let mut first = 1;
    while index >= first {
        index -= first;
        first += 1;
    }
    (first, index)
}

/// The key with these primes (RFC 8017, 3.2).
fn rsa_key_of_primes(p: &BigUint, q: &BigUint) -> Result<RsaKey, RsaKeyError> {
    let (one, e) = (BigUint::from(1_u8), BigUint::from(EXPONENT));
    let (p_minus_one, q_minus_one) = (p - &one, q - &one);
    let inverse = |number: &BigUint, modulus: &BigUint| {
        number.modinv(modulus).ok_or(RsaKeyError::InvalidComponents)
    };
    let d = inverse(&e, &(&p_minus_one * &q_minus_one))?;
    let bytes = BigUint::to_bytes_be;
    RsaKey::from_components(&KeyPairComponents {
        public_key: PublicKeyComponents { n: bytes(&(p * q)), e: bytes(&e) },
        d: bytes(&d),
        p: bytes(p),
        q: bytes(q),
        dP: bytes(&(&d % &p_minus_one)),
        dQ: bytes(&(&d % &q_minus_one)),
        qInv: bytes(&inverse(q, p)?),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn seeded(text: &str) -> IdGenerator {
        IdGenerator::seeded(Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()))
    }

    #[test]
    fn the_same_seed_gives_the_same_keys() {
        let keys = |seed: &str| {
            let mut ids = seeded(seed);
            let rsa = (0..3).map(|_| ids.generate_rsa_key().unwrap().pkcs8().to_vec());
            let mut keys: Vec<_> = rsa.collect();
            let curves = EllipticCurve::ALL;
            keys.extend(curves.map(|curve| ids.generate_ec_key(curve).unwrap().pkcs8().to_vec()));
            keys
        };
        let first = keys("a");
        assert_eq!(first, keys("a"));
        let other = keys("b");
        assert!(first.iter().all(|key| !other.contains(key)));
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), first.len());
    }

    #[test]
    fn keys_of_every_size_sign() {
        let mut ids = seeded("sizes");
        for size in [RsaKeySize::Bits2048, RsaKeySize::Bits3072, RsaKeySize::Bits4096] {
            let key = ids.next_rsa_key(size).unwrap().unwrap();
            assert_eq!(key.size_bits().unwrap(), size.bits());
            let signature = key.sign_rs256(b"message").unwrap();
            assert_eq!(u32::try_from(signature.len() * 8).unwrap(), size.bits());
        }
    }

    #[test]
    fn every_pair_of_primes_is_used_once_and_then_keys_are_random() {
        let pairs: BTreeSet<_> = (0..45).map(pair_of_index).collect();
        assert_eq!(pairs.len(), 45);
        assert!(pairs.iter().all(|(first, second)| second < first && *first < 10));
        let mut ids = seeded("exhausted");
        let keys =
            std::iter::from_fn(|| ids.next_rsa_key(RsaKeySize::Bits3072)).map(Result::unwrap);
        let moduli: BTreeSet<_> =
            keys.map(|key| key.jwk_modulus_and_exponent().unwrap().0).collect();
        assert_eq!(moduli.len(), 45);
    }

    #[test]
    fn bytes_depend_on_seed_and_position() {
        let mut ids = seeded("bytes");
        let first = *ids.next_bytes::<100>().unwrap();
        assert_ne!(first, *ids.next_bytes::<100>().unwrap());
        assert_eq!(first, *seeded("bytes").next_bytes::<100>().unwrap());
        let mut random = IdGenerator::Random;
        assert_ne!(*random.next_bytes::<64>().unwrap(), *random.next_bytes::<64>().unwrap());
    }
}
