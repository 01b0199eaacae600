//! What must hold of a node.
