//! Orders a certificate chain: the leaf first, then each issuer.

use std::collections::HashMap;

use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Errors of ordering a certificate chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainOrderError {
    /// A certificate cannot be parsed.
    #[error("certificate {index} cannot be read")]
    Unreadable {
        /// The certificate's position, from 0.
        index: usize,
    },
    /// Every certificate is the issuer of another one.
    #[error("every one of the {count} certificates issued another one, so none is the leaf")]
    NoLeaf {
        /// The number of certificates.
        count: usize,
    },
    /// The issuers form a cycle.
    #[error("the issuers of the certificates form a cycle")]
    Cycle,
}

/// The order of a certificate chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChainOrder {
    /// The positions of all certificates, leaf first.
    Complete(Vec<usize>),
    /// Only some certificates are linked to the leaf; the position of the others is unknown.
    Incomplete {
        /// The number of linked certificates.
        linked: usize,
    },
}

/// Orders certificates (DER) by their subject and authority key identifiers, as upstream does. The leaf is
/// the first certificate that issued no other.
pub(crate) fn order_chain<'a>(
    certificates: impl IntoIterator<Item = &'a [u8]>,
) -> Result<ChainOrder, ChainOrderError> {
    let mut links = Vec::new();
    for (index, der) in certificates.into_iter().enumerate() {
        links.push(CertificateLink::parse(der).ok_or(ChainOrderError::Unreadable { index })?);
    }
    order_links(&links)
}

/// The key identifiers that link a certificate to others.
#[derive(Debug, Clone, Default)]
struct CertificateLink {
    subject_key_id: Option<Vec<u8>>,
    authority_key_id: Option<Vec<u8>>,
}

impl CertificateLink {
    fn parse(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut link = Self::default();
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => {
                    link.subject_key_id = Some(id.0.to_vec());
                }
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    link.authority_key_id = id.key_identifier.as_ref().map(|id| id.0.to_vec());
                }
                _ => {}
            }
        }
        // A root that names itself has no issuer, even if it occurs several times.
        link.authority_key_id =
            link.authority_key_id.filter(|issuer| Some(issuer) != link.subject_key_id.as_ref());
        Some(link)
    }
}

fn order_links(links: &[CertificateLink]) -> Result<ChainOrder, ChainOrderError> {
    if links.is_empty() {
        return Ok(ChainOrder::Complete(Vec::new()));
    }
    let mut by_own = HashMap::new();
    for (index, link) in links.iter().enumerate() {
        if let Some(own) = &link.subject_key_id {
            by_own.entry(own).or_insert(index);
        }
    }
    let issuers: Vec<Option<usize>> =
        links.iter().map(|link| by_own.get(link.authority_key_id.as_ref()?).copied()).collect();
    let leaf = (0..links.len())
        .find(|index| !issuers.contains(&Some(*index)))
        .ok_or(ChainOrderError::NoLeaf { count: links.len() })?;
    let mut chain = vec![leaf];
    let mut next = issuers[leaf];
    while let Some(issuer) = next {
        if chain.contains(&issuer) {
            return Err(ChainOrderError::Cycle);
        }
        chain.push(issuer);
        next = issuers[issuer];
    }
    if chain.len() == links.len() {
        Ok(ChainOrder::Complete(chain))
    } else {
        Ok(ChainOrder::Incomplete { linked: chain.len() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn link(own: &str, issuer: &str) -> CertificateLink {
        let id = |text: &str| (!text.is_empty()).then(|| text.as_bytes().to_vec());
        CertificateLink { subject_key_id: id(own), authority_key_id: id(issuer) }
    }

    fn complete_order(order: &[usize]) -> ChainOrder {
        ChainOrder::Complete(order.to_vec())
    }

    #[test]
    fn chains_are_ordered_from_the_leaf_to_the_root() {
        let cases = [
            (vec![], Ok(complete_order(&[]))),
            (vec![link("a", "")], Ok(complete_order(&[0]))),
            (vec![link("", "")], Ok(complete_order(&[0]))),
            (
                vec![link("root", ""), link("ca", "root"), link("leaf", "ca")],
                Ok(complete_order(&[2, 1, 0])),
            ),
            (
                vec![link("ca", "root"), link("leaf", "ca"), link("root", "")],
                Ok(complete_order(&[1, 0, 2])),
            ),
            // The leaf needs no subject key identifier.
            (vec![link("ca", ""), link("", "ca")], Ok(complete_order(&[1, 0]))),
            // A missing issuer ends the chain.
            (vec![link("leaf", "ca"), link("ca", "elsewhere")], Ok(complete_order(&[0, 1]))),
            // An issuer without a key identifier cannot be found.
            (vec![link("leaf", "ca"), link("", "")], Ok(ChainOrder::Incomplete { linked: 1 })),
            (
                vec![link("one", ""), link("two", ""), link("three", "two")],
                Ok(ChainOrder::Incomplete { linked: 1 }),
            ),
            (vec![link("a", "b"), link("b", "a")], Err(ChainOrderError::NoLeaf { count: 2 })),
            (vec![link("leaf", "a"), link("a", "b"), link("b", "a")], Err(ChainOrderError::Cycle)),
        ];
        for (links, expected) in cases {
            assert_eq!(order_links(&links), expected, "{links:?}");
        }
    }

    #[test]
    fn unreadable_certificate_is_reported_by_index() {
        assert_eq!(order_chain([&b"junk"[..]]), Err(ChainOrderError::Unreadable { index: 0 }));
    }

    proptest! {
        #[test]
        fn complete_order_is_a_permutation_where_each_is_issued_by_the_next(
            pairs in prop::collection::vec(("[abcd]?", "[abcd]?"), 0..7)
        ) {
            let links: Vec<_> = pairs.iter().map(|(own, issuer)| link(own, issuer)).collect();
            if let Ok(ChainOrder::Complete(order)) = order_links(&links) {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                prop_assert_eq!(sorted, (0..links.len()).collect::<Vec<_>>());
                for pair in order.windows(2) {
                    prop_assert_eq!(&links[pair[0]].authority_key_id, &links[pair[1]].subject_key_id);
                }
            }
        }
    }
}
