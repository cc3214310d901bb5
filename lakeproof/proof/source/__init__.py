"""The source's side of a proof: its SQL, read under the proof's snapshot.

The comparison with the lake does not belong here (`lakeproof.proof.compare`).
"""
