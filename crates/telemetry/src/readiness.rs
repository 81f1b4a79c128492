//! Readiness: whether the process can do its work, and what it waits for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// The readiness of a process: it is ready when all of its gates are open.
#[derive(Debug, Clone)]
pub struct Readiness(Arc<watch::Sender<ClosedGates>>);

/// The closed gates with their reasons. Open gates are absent.
type ClosedGates = BTreeMap<&'static str, String>;

/// A condition that must hold before the process is ready.
#[derive(Debug, Clone)]
pub struct ReadinessGate {
    name: &'static str,
    readiness: Readiness,
}

/// A closed gate with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadinessProblem {
    /// The name of the gate.
    pub gate: &'static str,
    /// Why it is closed.
    pub reason: String,
}

impl Readiness {
    /// Adds a gate, closed for this reason.
    pub fn add_gate(&self, name: &'static str, reason: impl Into<String>) -> ReadinessGate {
        let gate = ReadinessGate { name, readiness: self.clone() };
        gate.close(reason);
        gate
    }

    /// Whether every gate is open.
    pub fn is_ready(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The closed gates, by name.
    pub fn problems(&self) -> Vec<ReadinessProblem> {
        let reasons = self.0.borrow();
        reasons.iter().map(|(gate, why)| ReadinessProblem { gate, reason: why.clone() }).collect()
    }

    /// Waits until every gate is open. Cancel safe.
    pub async fn wait_until_ready(&self) {
        self.wait_until_ready_is(true).await;
    }

    /// Waits until a gate is closed. Cancel safe.
    pub async fn wait_until_not_ready(&self) {
        self.wait_until_ready_is(false).await;
    }

    async fn wait_until_ready_is(&self, ready: bool) {
        let mut reasons = self.0.subscribe();
        // `wait_for` fails only without a sender, and `self` holds one.
        drop(reasons.wait_for(|reasons| reasons.is_empty() == ready).await);
    }
}

impl Default for Readiness {
    /// A process without gates is ready.
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(ClosedGates::new())))
    }
}

impl ReadinessGate {
    /// Opens the gate: its condition holds.
    pub fn open(&self) {
        let name = self.name;
        self.readiness.0.send_if_modified(|reasons| reasons.remove(name).is_some());
    }

    /// Closes the gate: its condition does not hold.
    pub fn close(&self, reason: impl Into<String>) {
        let (name, reason) = (self.name, reason.into());
        self.readiness.0.send_if_modified(|reasons| {
            let before = reasons.insert(name, reason.clone());
            before.as_ref() != Some(&reason)
        });
    }
}

impl ReadinessGate {
    /// Whether the gate is open.
    pub fn is_open(&self) -> bool {
        !self.readiness.0.borrow().contains_key(self.name)
    }

    /// Whether every gate but this one is open.
    pub fn others_are_open(&self) -> bool {
        self.all_others_open(&self.readiness.0.borrow())
    }

    /// Waits until every gate but this one is open. Cancel safe.
    pub async fn wait_until_others_open(&self) {
        self.wait_until_others_open_is(true).await;
    }

    /// Waits until a gate other than this one is closed. Cancel safe.
    pub async fn wait_until_another_closes(&self) {
        self.wait_until_others_open_is(false).await;
    }

    async fn wait_until_others_open_is(&self, alone: bool) {
        let mut reasons = self.readiness.0.subscribe();
        // `wait_for` fails only without a sender, and `self` holds one.
        drop(reasons.wait_for(|reasons| self.all_others_open(reasons) == alone).await);
    }

    fn all_others_open(&self, reasons: &ClosedGates) -> bool {
        reasons.keys().all(|name| *name == self.name)
    }
}

impl fmt::Display for ReadinessProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.gate, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_every_gate_is_open() {
        let readiness = Readiness::default();
        assert!(readiness.is_ready());
        let socket = readiness.add_gate("socket", "does not listen");
        let classes = readiness.add_gate("classes", "not listed");
        socket.open();
        assert_eq!(
            readiness.problems(),
            [ReadinessProblem { gate: "classes", reason: "not listed".into() }]
        );
        classes.open();
        assert!(readiness.is_ready() && socket.is_open());
        socket.close("was removed");
        assert!(!socket.is_open() && classes.is_open());
        assert_eq!(readiness.problems()[0].to_string(), "socket: was removed");
    }

    #[tokio::test]
    async fn gate_waits_for_the_other_gates() {
        let readiness = Readiness::default();
        let registration = readiness.add_gate("registration", "the kubelet did not come yet");
        let socket = readiness.add_gate("socket", "does not listen");
        assert!(!registration.others_are_open());
        socket.open();
        registration.wait_until_others_open().await;
        socket.close("was removed");
        registration.wait_until_another_closes().await;
        socket.open();
        assert!(!readiness.is_ready());
    }

    #[tokio::test]
    async fn waits_end_when_the_last_gate_opens_and_when_one_closes() {
        let readiness = Readiness::default();
        let gate = readiness.add_gate("socket", "does not listen");
        let waiting = tokio::spawn({
            let readiness = readiness.clone();
            async move {
                readiness.wait_until_ready().await;
                readiness.wait_until_not_ready().await;
            }
        });
        gate.open();
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        gate.close("was removed");
        waiting.await.unwrap();
    }
}
