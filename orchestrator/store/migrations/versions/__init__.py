"""One file a revision, in order; a revision that was released is never edited.

What came before the first release is one revision, which bears the number of the last of them.
"""
