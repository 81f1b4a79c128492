//! Orders a certificate chain: the leaf first, then each issuer.

use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The order of certificates: a chain, and the certificates that do not belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChainOrder {
    /// The positions of all certificates: the leaf, its issuers, and then the others in their given order.
    pub(crate) positions: Vec<usize>,
    /// The number of certificates in the chain, which are the first of `positions`.
    pub(crate) linked: usize,
    /// Whether the last certificate of the chain is a root.
    pub(crate) ends_with_root: bool,
}

impl ChainOrder {
    /// The certificates that do not belong to the chain, if there are any.
    pub(crate) fn unlinked(&self) -> Option<UnlinkedCertificates> {
        let (linked, count) = (self.linked, self.positions.len());
        let ends_with_root = self.ends_with_root;
        (linked < count).then_some(UnlinkedCertificates { linked, count, ends_with_root })
    }
}

/// Certificates that do not belong to a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnlinkedCertificates {
    /// The number of certificates in the chain.
    pub(crate) linked: usize,
    /// The total number of certificates.
    pub(crate) count: usize,
    /// Whether the chain ends with a root: no issuer is missing.
    pub(crate) ends_with_root: bool,
}

/// Orders certificates (DER). The chain begins with the certificate at the position `leaf`, or, without one,
/// with the first certificate that issued no other, a root only if there is nothing else.
pub(crate) fn order_chain(certificates: &[&[u8]], leaf: Option<usize>) -> ChainOrder {
    let links: Vec<_> = certificates.iter().map(|der| CertificateLink::parse(der)).collect();
    order_links(&links, leaf)
}

/// The names and key identifiers that link a certificate to others (RFC 5280, 4.1.2 and 4.2.1). A certificate
/// that cannot be parsed has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct CertificateLink {
    subject: Option<Vec<u8>>,
    issuer: Option<Vec<u8>>,
    subject_key_id: Option<Vec<u8>>,
    authority_key_id: Option<Vec<u8>>,
}

/// The evidence that one certificate issued another, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LinkEvidence {
    /// The authority key identifier is the subject key identifier of the issuer.
    KeyId,
    /// At least one certificate has no key identifier, and the issuer's name is equal.
    Name,
}

impl CertificateLink {
    fn parse(der: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Self::default() };
        let mut link = Self {
            subject: Some(certificate.subject().as_raw().to_vec()),
            issuer: Some(certificate.issuer().as_raw().to_vec()),
            ..Self::default()
        };
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
        link
    }

    /// The evidence that `other` issued this certificate. Different key identifiers outweigh equal names: an
    /// authority keeps its name when it changes its key.
    fn issued_by(&self, other: &Self) -> Option<LinkEvidence> {
        if let (Some(wanted), Some(found)) = (&self.authority_key_id, &other.subject_key_id) {
            return (wanted == found).then_some(LinkEvidence::KeyId);
        }
        let names_other = self.issuer.is_some() && self.issuer == other.subject;
        names_other.then_some(LinkEvidence::Name)
    }

    /// Whether the certificate is a root, which names itself as its issuer.
    fn is_root(&self) -> bool {
        self.issued_by(self).is_some()
    }
}

fn order_links(links: &[CertificateLink], leaf: Option<usize>) -> ChainOrder {
    let issued_another = |issuer: usize| {
        let mut others = links.iter().enumerate().filter(|(index, _)| *index != issuer);
        others.any(|(_, link)| !link.is_root() && link.issued_by(&links[issuer]).is_some())
    };
    let leaf = leaf.or_else(|| {
        let candidates = (0..links.len()).filter(|index| !issued_another(*index));
        candidates.min_by_key(|index| links[*index].is_root())
    });
    let mut positions = Vec::with_capacity(links.len());
    // Certificates that issued each other in a circle have no leaf, and stay in their order.
    let mut next = leaf.filter(|leaf| *leaf < links.len());
    while let Some(current) = next {
        positions.push(current);
        let link = &links[current];
        let unused = (0..links.len()).filter(|index| !positions.contains(index));
        next = unused
            // A root ends the chain, unlike a certificate that another authority issued for the key of the root.
            .filter_map(|index| {
                Some((link.issued_by(&links[index])?, !links[index].is_root(), index))
            })
            .min()
            .filter(|_| !link.is_root())
            .map(|(_, _, index)| index);
    }
    let linked = positions.len();
    let ends_with_root = positions.last().is_some_and(|last| links[*last].is_root());
    let others: Vec<_> = (0..links.len()).filter(|index| !positions.contains(index)).collect();
    positions.extend(others);
    ChainOrder { positions, linked, ends_with_root }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A certificate from four words: subject, issuer, subject and authority key identifier. `-` stands for none.
    fn link(words: &str) -> CertificateLink {
        let mut words =
            words.split(' ').map(|word| (word != "-").then(|| word.as_bytes().to_vec()));
        let mut next = || words.next().flatten();
        CertificateLink {
            subject: next(),
            issuer: next(),
            subject_key_id: next(),
            authority_key_id: next(),
        }
    }

    fn order(links: &[&str], leaf: Option<usize>) -> (Vec<usize>, usize) {
        let links: Vec<_> = links.iter().map(|words| link(words)).collect();
        let order = order_links(&links, leaf);
        (order.positions, order.linked)
    }

    #[test]
    fn chains_are_ordered_from_the_leaf_to_the_root() {
        type ChainCase = (&'static str, &'static [&'static str], &'static [usize], usize);
        let cases: [ChainCase; 14] = [
            ("nothing", &[], &[], 0),
            ("only a root", &["R R r -"], &[0], 1),
            ("key ids", &["R R r -", "I R i r", "L I l i"], &[2, 1, 0], 3),
            ("a root with both key ids", &["R R r r", "L R - r"], &[1, 0], 2),
            ("a missing root", &["I R i r", "L I l i"], &[1, 0], 2),
            ("names alone", &["R R - -", "I R - -", "L I - -"], &[2, 1, 0], 3),
            ("a root without key ids", &["R R - -", "I R i r", "L I l i"], &[2, 1, 0], 3),
            ("no authority key id", &["I R i -", "R R r -", "L I l -"], &[2, 0, 1], 3),
            ("key ids before names", &["I R - -", "I R i -", "L I l i"], &[2, 1, 0], 2),
            ("an issuer with another key", &["I R j -", "L I l i"], &[0, 1], 1),
            ("a missing intermediate", &["R R r -", "L I l i"], &[1, 0], 1),
            ("the same root twice", &["R R r r", "I R i r", "R R r r"], &[1, 0, 2], 2),
            ("a circle", &["A B a b", "B A b a"], &[0, 1], 0),
            ("unreadable certificates", &["- - - -", "L I - -", "- - - -"], &[0, 1, 2], 1),
        ];
        for (case, links, positions, linked) in cases {
            assert_eq!(order(links, None), (positions.to_vec(), linked), "{case}");
        }
    }

    #[test]
    fn chain_begins_with_the_certificate_of_the_key() {
        // A certificate of another key may also have issued nothing.
        assert_eq!(order(&["O R - -", "R R - -", "L R - -"], Some(2)), (vec![2, 1, 0], 2));
        assert_eq!(order(&["R R r r", "L I l i"], Some(1)), (vec![1, 0], 1));
        // Certificates that issued each other.
        assert_eq!(order(&["A B a b", "B A b a"], Some(1)), (vec![1, 0], 2));
        assert_eq!(order(&["L A l a", "A B a b", "B A b a"], Some(0)), (vec![0, 1, 2], 3));
    }

    #[test]
    fn an_issuer_is_missing_only_if_the_chain_does_not_end_with_a_root() {
        type UnlinkedCase = (&'static str, &'static [&'static str], Option<(usize, usize, bool)>);
        let cases: [UnlinkedCase; 6] = [
            ("a complete chain", &["R R r -", "L R l r"], None),
            ("a chain without its root", &["I R i r", "L I l i"], None),
            ("the same root twice", &["L R l r", "R R r r", "R R r r"], Some((2, 3, true))),
            (
                "a root that another root signed",
                &["L R l r", "R S r s", "R R r r"],
                Some((2, 3, true)),
            ),
            ("a missing intermediate", &["R R r -", "L I l i"], Some((1, 2, false))),
            ("a circle", &["A B a b", "B A b a"], Some((0, 2, false))),
        ];
        for (case, words, expected) in cases {
            let links: Vec<_> = words.iter().map(|words| link(words)).collect();
            let expected = expected.map(|(linked, count, ends_with_root)| UnlinkedCertificates {
                linked,
                count,
                ends_with_root,
            });
            assert_eq!(order_links(&links, None).unlinked(), expected, "{case}");
        }
    }

    #[test]
    fn new_key_of_an_authority_is_linked_to_its_old_key() {
        let links = ["R R old -", "R R new old", "L R - new"];
        assert_eq!(order(&links, None), (vec![2, 1, 0], 3));
    }

    proptest! {
        #[test]
        fn no_certificate_is_lost_and_each_is_issued_by_the_next(
            words in prop::collection::vec("[ABC-] [ABC-] [abc-] [abc-]", 0..7),
            leaf in prop::option::of(0..7_usize),
        ) {
            let links: Vec<_> = words.iter().map(|words| link(words)).collect();
            let leaf = leaf.filter(|leaf| *leaf < links.len());
            let order = order_links(&links, leaf);
            let mut sorted = order.positions.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..links.len()).collect::<Vec<_>>());
            if leaf.is_some() {
                prop_assert_eq!(order.positions.first().copied(), leaf);
            }
            for pair in order.positions[..order.linked].windows(2) {
                prop_assert!(links[pair[0]].issued_by(&links[pair[1]]).is_some());
            }
            prop_assert!(order.positions[order.linked..].is_sorted());
        }
    }
}
