//! Which keys are machines', and which are the store's own.

use std::ops::Bound;

use bytes::Bytes;

/// The store's own row: the index of the last log entry contained. Sorts before every machine's.
pub(crate) const APPLIED_KEY: &[u8] = &[0, 0, b'a'];

/// Where machines' keys begin: machine numbers are two bytes and never 0.
pub(crate) const FIRST_KEY: &[u8] = &[0, 1];

/// Rows up to this size are copied out of their block. A slice would keep all of the block in
/// memory for as long as the caller keeps the row.
const COPY_BYTES_MAX: usize = 2 * 1024;

/// Both ends of a range of keys.
pub(crate) type KeyRange<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// Whether a machine may use this key.
pub(crate) fn is_machines(key: &[u8]) -> bool {
    key >= FIRST_KEY
}

/// The same range without the store's own keys; `None` when nothing is left of it.
pub(crate) fn machines_range<'k>(
    from: Bound<&'k [u8]>,
    to: Bound<&'k [u8]>,
) -> Option<KeyRange<'k>> {
    let from = match from {
        Bound::Included(key) | Bound::Excluded(key) if is_machines(key) => from,
        _ => Bound::Included(FIRST_KEY),
    };
    let empty = match (from, to) {
        (Bound::Included(first), Bound::Included(last)) => first > last,
        (Bound::Included(first) | Bound::Excluded(first), Bound::Excluded(last))
        | (Bound::Excluded(first), Bound::Included(last)) => first >= last,
        _ => false,
    };
    (!empty).then_some((from, to))
}

/// What fjall handed out, free of the block it lies in if that is much larger.
pub(crate) fn detach(slice: fjall::Slice) -> Bytes {
    if slice.len() <= COPY_BYTES_MAX { Bytes::copy_from_slice(&slice) } else { slice.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_never_reaches_the_stores_own_keys() {
        let all = machines_range(Bound::Unbounded, Bound::Unbounded);
        assert_eq!(all, Some((Bound::Included(FIRST_KEY), Bound::Unbounded)));
        let low = machines_range(Bound::Excluded(&[0]), Bound::Included(&[0, 2]));
        assert_eq!(low, Some((Bound::Included(FIRST_KEY), Bound::Included(&[0, 2][..]))));
        assert_eq!(machines_range(Bound::Unbounded, Bound::Excluded(FIRST_KEY)), None);
        assert_eq!(machines_range(Bound::Unbounded, Bound::Included(APPLIED_KEY)), None);
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_empty() {
        let (a, b): (&[u8], &[u8]) = (&[1, 1], &[1, 2]);
        assert_eq!(machines_range(Bound::Included(b), Bound::Included(a)), None);
        assert_eq!(machines_range(Bound::Excluded(a), Bound::Included(a)), None);
        assert_eq!(machines_range(Bound::Included(a), Bound::Excluded(a)), None);
        assert!(machines_range(Bound::Included(a), Bound::Included(a)).is_some());
    }
}
