//! How many worker nodes the network of a cluster can serve.

use lanyard_changes::PreflightFinding;

/// The ports for outbound connections that one public IP address has.
const PORTS_PER_ADDRESS: u32 = 64_000;
/// The ports that the load balancer reserves for each node (`allocatedOutboundPorts`).
const PORTS_PER_NODE: u32 = 1_024;
/// The addresses of each subnet that Azure uses itself.
const RESERVED_ADDRESSES: u32 = 5;

/// The number of nodes that one public IP address serves. Azure rejects the attachment of further nodes to the
/// backend pool.
pub const NODES_PER_EGRESS_ADDRESS: u32 = PORTS_PER_ADDRESS / PORTS_PER_NODE;

/// The addresses of a subnet that nodes can use; `None` if the text is not an IPv4 range such as `10.0.0.0/24`.
pub fn usable_addresses(range: &str) -> Option<u32> {
    let (address, length) = range.split_once('/')?;
    address.parse::<std::net::Ipv4Addr>().ok()?;
    let length: u32 = length.parse().ok()?;
    let host_bits = 32_u32.checked_sub(length)?;
    let addresses = 1_u32.checked_shl(host_bits).unwrap_or(u32::MAX);
    Some(addresses.saturating_sub(RESERVED_ADDRESSES))
}

/// Warns if `nodes` worker nodes do not fit into the subnet or exceed the outbound ports of one public IP address.
pub fn check_size(nodes: u32, subnet_range: Option<&str>) -> Vec<PreflightFinding> {
    let mut findings = Vec::new();
    if nodes > NODES_PER_EGRESS_ADDRESS {
        let addresses = nodes.div_ceil(NODES_PER_EGRESS_ADDRESS);
        findings.push(PreflightFinding::warning(
            "outbound ports",
            format!(
                "{nodes} nodes need the outbound ports of {addresses} public IP addresses; one address serves {NODES_PER_EGRESS_ADDRESS} nodes"
            ),
            "add frontend addresses to the outbound rule before the cluster grows, or use a NAT gateway",
        ));
    }
    if let Some(range) = subnet_range
        && let Some(usable) = usable_addresses(range)
        && nodes > usable
    {
        findings.push(PreflightFinding::warning(
            "subnet size",
            format!("the subnet {range} has {usable} usable addresses for {nodes} nodes"),
            "use a larger subnet; a subnet with machines cannot be resized",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_serves_62_nodes() {
        assert_eq!(NODES_PER_EGRESS_ADDRESS, 62);
        assert!(check_size(62, Some("10.0.0.0/24")).is_empty());
        let findings = check_size(63, Some("10.0.0.0/24"));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("2 public IP addresses"), "{findings:?}");
    }

    #[test]
    fn azure_reserves_five_addresses_of_each_subnet() {
        for (range, expected) in [
            ("10.0.0.0/24", Some(251)),
            ("10.0.0.0/29", Some(3)),
            ("10.0.0.0/32", Some(0)),
            ("10.0.0.0/33", None),
            ("10.0.0.0", None),
            ("fd00::/64", None),
        ] {
            assert_eq!(usable_addresses(range), expected, "{range}");
        }
        let findings = check_size(252, Some("10.0.0.0/24"));
        assert!(findings.iter().any(|it| it.check == "subnet size"), "{findings:?}");
    }
}
