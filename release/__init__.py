"""What a release needs: wheels that work alone, and licences that allow it."""
