//! What nodes tell one another of others, as bytes: so that it is enough to know one of them.

use holdfast_raft::NodeId;

/// Nodes in one frame.
const NODES_MAX: usize = 64;

const TEXT_BYTES_MAX: usize = 300;

/// A node that somebody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub id: NodeId,
    pub name: String,
    /// Host and port.
    pub address: String,
}

/// For each node: its id, and name and address with their lengths.
pub(super) fn encode<'n>(nodes: impl IntoIterator<Item = (NodeId, &'n str, &'n str)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, name, address) in nodes.into_iter().take(NODES_MAX) {
        out.extend_from_slice(&id.0.to_be_bytes());
        for text in [name, address] {
            out.extend_from_slice(&(text.len() as u16).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// `None` if it is not that, or too much of it.
pub(super) fn decode(mut bytes: &[u8]) -> Option<Vec<Told>> {
    let mut nodes = Vec::new();
    while let Some((id, rest)) = bytes.split_first_chunk() {
        bytes = rest;
        let id = NodeId(u128::from_be_bytes(*id));
        let (name, address) = (text(&mut bytes)?, text(&mut bytes)?);
        nodes.push(Told { id, name, address });
        if nodes.len() > NODES_MAX {
            return None;
        }
    }
    bytes.is_empty().then_some(nodes)
}

fn text(bytes: &mut &[u8]) -> Option<String> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = usize::from(u16::from_be_bytes(*length));
    let (text, rest) = rest.split_at_checked(length).filter(|_| (1..=TEXT_BYTES_MAX).contains(&length))?;
    *bytes = rest;
    let text = std::str::from_utf8(text).ok()?;
    (!text.chars().any(char::is_control)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nodes_come_back_and_half_of_one_does_not() {
        let bytes = encode([(NodeId(1), "n1", "h:1"), (NodeId(2), "n2", "h:2")]);
        let told = |id, name: &str, address: &str| Told { id: NodeId(id), name: name.into(), address: address.into() };
        assert_eq!(decode(&bytes), Some(vec![told(1, "n1", "h:1"), told(2, "n2", "h:2")]));
        assert_eq!(decode(&[]), Some(vec![]));
        let whole = bytes.len() / 2;
        let cuts: Vec<_> = (1..bytes.len()).filter(|cut| decode(&bytes[..*cut]).is_some()).collect();
        assert_eq!(cuts, [whole]);
        let many = encode((0..100).map(|id| (NodeId(id), "n", "h:1")));
        assert_eq!(decode(&many).map(|nodes| nodes.len()), Some(NODES_MAX));
        assert_eq!(decode(&[&many[..], &many].concat()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
