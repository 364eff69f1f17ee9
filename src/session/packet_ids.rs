//! Packet identifiers that this server gives to its own PUBLISH packets [MQTT-2.2.1-3], [MQTT-2.2.1-4].

use crate::mqtt::PacketId;

/// Hands out identifiers in turn, so that one that was just freed is not used again at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketIds {
    last: u16,
}

impl PacketIds {
    /// The next identifier that is not in use. Callers keep fewer than 65,535 in use.
    pub fn next(&mut self, in_use: impl Fn(PacketId) -> bool) -> PacketId {
        loop {
            self.last = self.last.wrapping_add(1);
            match PacketId::new(self.last) {
                Some(id) if !in_use(id) => return id,
                _ => {}
            }
        }
    }

    /// The identifier that was given last; 0: none.
    pub fn last(&self) -> u16 {
        self.last
    }

    /// After a restore: goes on behind the highest identifier that is still in use.
    pub fn resume_after(&mut self, last: PacketId) {
        self.last = last.get();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_wrap_past_zero_and_skip_those_in_use() {
        let mut ids = PacketIds { last: 65_533 };
        let busy = [65_535u16, 1];
        let next: Vec<u16> = (0..3).map(|_| ids.next(|id| busy.contains(&id.get())).get()).collect();
        assert_eq!(next, [65_534, 2, 3]);
    }
}
