//! The two layouts of a ciphertext.
//!
//! The upstream plugin and its OpenShift fork write different bytes for the same key, key id and
//! annotations: the fork's client library encodes a second time what the plugin already encoded.
//! This plugin reads both layouts; a setting selects the one that it writes.
//!
//! | step (P is the plaintext, k the length of the modulus) | upstream | OpenShift |
//! |---|---|---|
//! | plaintext of the RSA operation | P | the text base64url(P) |
//! | `value` in the request | base64url(P) | base64url(base64url(P)) |
//! | ciphertext for the API server | the text of `value` in the reply | its decoded bytes |
//! | length for 2048, 3072, 4096 bits | 342, 512, 683 characters | 256, 384, 512 bytes |
//!
//! base64url is without padding (RFC 4648, 5).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CiphertextLayout {
    /// The layout of kubernetes-kms.
    #[default]
    Upstream,
    /// The layout of the OpenShift fork since release 4.19.
    OpenShift,
}

impl fmt::Display for CiphertextLayout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Upstream => "upstream",
            Self::OpenShift => "openshift",
        })
    }
}

/// Bytes do not have the expected layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CiphertextLayoutError {
    /// The ciphertext does not have the length or alphabet of a ciphertext for a 2048, 3072 or 4096
    /// bit key.
    #[error("a ciphertext of {length} bytes has neither the upstream layout nor that of OpenShift")]
    Ciphertext {
        /// The length in bytes.
        length: usize,
    },
    /// The vault returned a value that is not a ciphertext for such a key.
    #[error("the vault returned a value of {length} characters, which is not an RSA ciphertext")]
    Value {
        /// The length in characters.
        length: usize,
    },
    /// The decrypted value does not have the encoding of the layout.
    #[error(
        "the decrypted value is not base64url without padding, as the {layout} layout requires"
    )]
    Plaintext { layout: CiphertextLayout },
}

/// The modulus lengths of RSA keys in vaults, in bytes.
const MODULI: [usize; 3] = [256, 384, 512];

impl CiphertextLayout {
    /// Detects the layout of a ciphertext from its bytes, because annotations are not authenticated
    /// and version 1 has none. A length of 512 is possible in both layouts; then the alphabet
    /// decides: the probability that 512 random bytes are all base64url characters is 2^-1024.
    ///
    /// # Errors
    ///
    /// [`CiphertextLayoutError::Ciphertext`] if it has neither layout.
    pub fn of_ciphertext(ciphertext: &[u8]) -> Result<Self, CiphertextLayoutError> {
        let length = ciphertext.len();
        let is_text = ciphertext
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if is_text && MODULI.iter().any(|modulus| encoded_length(*modulus) == length) {
            Ok(Self::Upstream)
        } else if MODULI.contains(&length) {
            Ok(Self::OpenShift)
        } else {
            Err(CiphertextLayoutError::Ciphertext { length })
        }
    }

    /// The `value` of an encrypt request.
    pub fn encrypt_value(self, plaintext: &[u8]) -> Zeroizing<String> {
        let once = Zeroizing::new(URL_SAFE_NO_PAD.encode(plaintext));
        match self {
            Self::Upstream => once,
            Self::OpenShift => Zeroizing::new(URL_SAFE_NO_PAD.encode(once.as_bytes())),
        }
    }

    /// The ciphertext for the API server, from the `value` that the vault returned.
    ///
    /// # Errors
    ///
    /// [`CiphertextLayoutError::Value`] if the value is not an RSA ciphertext. The check is strict
    /// because ciphertexts are stored for years.
    pub fn ciphertext(self, value: &str) -> Result<Vec<u8>, CiphertextLayoutError> {
        let problem = || CiphertextLayoutError::Value { length: value.len() };
        let bytes = URL_SAFE_NO_PAD.decode(value).ok();
        let bytes = bytes.filter(|bytes| MODULI.contains(&bytes.len())).ok_or_else(problem)?;
        Ok(match self {
            Self::Upstream => value.as_bytes().to_vec(),
            Self::OpenShift => bytes,
        })
    }

    /// The `value` of a decrypt request.
    pub fn decrypt_value(self, ciphertext: &[u8]) -> String {
        match self {
            // A ciphertext of this layout is ASCII.
            Self::Upstream => String::from_utf8_lossy(ciphertext).into_owned(),
            Self::OpenShift => URL_SAFE_NO_PAD.encode(ciphertext),
        }
    }

    /// The plaintext, from the `value` that the vault returned.
    ///
    /// # Errors
    ///
    /// [`CiphertextLayoutError::Plaintext`] if the value does not have the encoding of the layout.
    /// Extra bytes are never trimmed, because their meaning is unknown.
    pub fn plaintext(self, value: &str) -> Result<Zeroizing<Vec<u8>>, CiphertextLayoutError> {
        let decode = |text: &[u8]| {
            URL_SAFE_NO_PAD
                .decode(text)
                .map(Zeroizing::new)
                .map_err(|_malformed| CiphertextLayoutError::Plaintext { layout: self })
        };
        let once = decode(value.as_bytes())?;
        match self {
            Self::Upstream => Ok(once),
            Self::OpenShift => decode(&once),
        }
    }
}

/// The length of the base64url encoding of this many bytes.
const fn encoded_length(bytes: usize) -> usize {
    (bytes * 4).div_ceil(3)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LAYOUTS: [CiphertextLayout; 2] =
        [CiphertextLayout::Upstream, CiphertextLayout::OpenShift];

    #[test]
    fn lengths_are_those_of_the_table() {
        for (modulus, text) in [(256, 342), (384, 512), (512, 683)] {
            let value = URL_SAFE_NO_PAD.encode(vec![0xa5; modulus]);
            let upstream = CiphertextLayout::Upstream.ciphertext(&value).unwrap();
            let openshift = CiphertextLayout::OpenShift.ciphertext(&value).unwrap();
            assert_eq!((upstream.len(), openshift.len()), (text, modulus));
        }
    }

    #[test]
    fn ciphertext_of_unknown_layout_is_rejected() {
        let text = |length| vec![b'A'; length];
        let padded = |length| [text(length), b"==".to_vec()].concat();
        let mut inside = text(342);
        inside[17] = b'=';
        let short = vec![0xff; 255];
        for bad in [text(0), text(341), text(343), padded(342), padded(340), inside, short] {
            let length = bad.len();
            assert_eq!(
                CiphertextLayout::of_ciphertext(&bad),
                Err(CiphertextLayoutError::Ciphertext { length })
            );
        }
    }

    #[test]
    fn at_the_length_of_both_layouts_the_alphabet_decides() {
        assert_eq!(CiphertextLayout::of_ciphertext(&[b'_'; 512]), Ok(CiphertextLayout::Upstream));
        let mut bytes = [b'_'; 512];
        bytes[511] = b'+';
        assert_eq!(CiphertextLayout::of_ciphertext(&bytes), Ok(CiphertextLayout::OpenShift));
        assert_eq!(CiphertextLayout::of_ciphertext(&[b'_'; 256]), Ok(CiphertextLayout::OpenShift));
    }

    #[test]
    fn invalid_vault_value_is_rejected() {
        let short = URL_SAFE_NO_PAD.encode([7; 255]);
        let padded = format!("{}=", URL_SAFE_NO_PAD.encode([7; 256]));
        for value in ["", "A", &short, &padded] {
            for layout in LAYOUTS {
                let length = value.len();
                assert_eq!(layout.ciphertext(value), Err(CiphertextLayoutError::Value { length }));
            }
        }
    }

    #[test]
    fn decrypted_value_is_decoded_per_layout() {
        assert_eq!(CiphertextLayout::Upstream.plaintext("AAEC").unwrap().as_slice(), [0, 1, 2]);
        assert_eq!(CiphertextLayout::OpenShift.plaintext("QUFFQw").unwrap().as_slice(), [0, 1, 2]);
        for (layout, bad) in [
            (CiphertextLayout::Upstream, "AAE="),
            (CiphertextLayout::Upstream, "A+/A"),
            (CiphertextLayout::OpenShift, "QUFFQw=="),
            // The inner text is `AAEC` with a trailing zero byte.
            (CiphertextLayout::OpenShift, "QUFFQwA"),
            // The inner bytes are not text.
            (CiphertextLayout::OpenShift, "_w"),
        ] {
            assert_eq!(
                layout.plaintext(bad),
                Err(CiphertextLayoutError::Plaintext { layout }),
                "{bad}"
            );
        }
    }

    proptest! {
        #[test]
        fn each_layout_round_trips(
            plaintext in prop::collection::vec(any::<u8>(), 0..447),
            modulus in prop::sample::select(MODULI.to_vec()),
            seed in any::<u8>(),
        ) {
            for layout in LAYOUTS {
                let sent = layout.encrypt_value(&plaintext);
                prop_assert_eq!(&*layout.plaintext(&sent).unwrap(), &plaintext);
                // Simulates RSA: arbitrary bytes with the length of the modulus.
                let rsa: Vec<u8> =
                    (0..modulus).map(|at| u8::try_from(at % 251).unwrap() ^ seed).collect();
                let value = URL_SAFE_NO_PAD.encode(&rsa);
                let ciphertext = layout.ciphertext(&value).unwrap();
                prop_assert_eq!(CiphertextLayout::of_ciphertext(&ciphertext), Ok(layout));
                prop_assert_eq!(layout.decrypt_value(&ciphertext), value);
                prop_assert!(ciphertext.len() <= 1024, "the limit of the API server");
            }
        }

        #[test]
        fn ciphertext_layout_is_detected_unambiguously(
            rsa in prop::sample::select(MODULI.to_vec())
                .prop_flat_map(|modulus| prop::collection::vec(any::<u8>(), modulus)),
        ) {
            let value = URL_SAFE_NO_PAD.encode(&rsa);
            for layout in LAYOUTS {
                let ciphertext = layout.ciphertext(&value).unwrap();
                prop_assert_eq!(CiphertextLayout::of_ciphertext(&ciphertext), Ok(layout));
            }
        }

        #[test]
        fn detected_layout_reproduces_any_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..700),
        ) {
            if let Ok(layout) = CiphertextLayout::of_ciphertext(&bytes) {
                let sent = layout.decrypt_value(&bytes);
                let back = match layout {
                    CiphertextLayout::Upstream => sent.into_bytes(),
                    CiphertextLayout::OpenShift => URL_SAFE_NO_PAD.decode(sent).unwrap(),
                };
                prop_assert_eq!(back, bytes);
            }
        }
    }
}
