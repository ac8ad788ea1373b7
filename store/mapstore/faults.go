package mapstore

import (
	"time"

	"belfry"
)

// Fault is a mistake that a driver could make, to be planted in a store: see [Planted].
type Fault string

// The faults, each named as the wrong fact that it makes true.
const (
	KeyIsIgnored                  Fault = "KeyIsIgnored"
	FingerprintIsIgnored          Fault = "FingerprintIsIgnored"
	FactIsIgnored                 Fault = "FactIsIgnored"
	FactIsNeverFreed              Fault = "FactIsNeverFreed"
	UnknownFreesTheFact           Fault = "UnknownFreesTheFact"
	DuplicatesAreNotCounted       Fault = "DuplicatesAreNotCounted"
	BatchIsHalfWritten            Fault = "BatchIsHalfWritten"
	CancelFlipsTheArmed           Fault = "CancelFlipsTheArmed"
	ClaimIsNotExclusive           Fault = "ClaimIsNotExclusive"
	ClaimTakesEarly               Fault = "ClaimTakesEarly"
	AloneIsForgotten              Fault = "AloneIsForgotten"
	LanesAreMixed                 Fault = "LanesAreMixed"
	ParkedNeverComesUp            Fault = "ParkedNeverComesUp"
	ArmNeedsNoClaim               Fault = "ArmNeedsNoClaim"
	ArmIgnoresTheOptOut           Fault = "ArmIgnoresTheOptOut"
	ArmIgnoresTheDeadline         Fault = "ArmIgnoresTheDeadline"
	ArmIgnoresTheEndpoint         Fault = "ArmIgnoresTheEndpoint"
	ArmIgnoresThePause            Fault = "ArmIgnoresThePause"
	ArmIgnoresTheSuppression      Fault = "ArmIgnoresTheSuppression"
	ArmIgnoresTheVerdict          Fault = "ArmIgnoresTheVerdict"
	ShadowIsSent                  Fault = "ShadowIsSent"
	CooldownLetsTwoFly            Fault = "CooldownLetsTwoFly"
	CooldownNeverEnds             Fault = "CooldownNeverEnds"
	SettleNeedsNoClaim            Fault = "SettleNeedsNoClaim"
	LateWordIsLost                Fault = "LateWordIsLost"
	MarkMovesOnFailure            Fault = "MarkMovesOnFailure"
	MarkMovesBack                 Fault = "MarkMovesBack"
	NextChannelOnlyAfterFailure   Fault = "NextChannelOnlyAfterFailure"
	GoneRetiresTheNewRegistration Fault = "GoneRetiresTheNewRegistration"
	RepairForgetsTheArm           Fault = "RepairForgetsTheArm"
	RepairTakesTheLiving          Fault = "RepairTakesTheLiving"
	EveryLossCountsAsPoison       Fault = "EveryLossCountsAsPoison"
	OptOutLeavesTheWaiting        Fault = "OptOutLeavesTheWaiting"
	SuppressionLeavesTheWaiting   Fault = "SuppressionLeavesTheWaiting"
	RetirementLeavesTheWaiting    Fault = "RetirementLeavesTheWaiting"
	TokenStaysWithItsOldOwner     Fault = "TokenStaysWithItsOldOwner"
	EveryAddressMoves             Fault = "EveryAddressMoves"
	NewTokenHasNoSuccessor        Fault = "NewTokenHasNoSuccessor"
	TaintedIsHandedOn             Fault = "TaintedIsHandedOn"
	ErasureLeavesTheData          Fault = "ErasureLeavesTheData"
	LiftWakesNothing              Fault = "LiftWakesNothing"
	SensitiveIsKept               Fault = "SensitiveIsKept"
	ReadsIgnoreTheProject         Fault = "ReadsIgnoreTheProject"
	StatsForgetTheMissed          Fault = "StatsForgetTheMissed"
	PurgeFreesTheFact             Fault = "PurgeFreesTheFact"
	PurgeForgetsTheKey            Fault = "PurgeForgetsTheKey"
)

// Faults lists every fault.
var Faults = []Fault{
	KeyIsIgnored, FingerprintIsIgnored, FactIsIgnored, FactIsNeverFreed, UnknownFreesTheFact, DuplicatesAreNotCounted,
	BatchIsHalfWritten, CancelFlipsTheArmed, ClaimIsNotExclusive, ClaimTakesEarly, AloneIsForgotten, LanesAreMixed,
	ParkedNeverComesUp, ArmNeedsNoClaim, ArmIgnoresTheOptOut, ArmIgnoresTheDeadline, ArmIgnoresTheEndpoint,
	ArmIgnoresThePause, ArmIgnoresTheSuppression, ArmIgnoresTheVerdict, ShadowIsSent, CooldownLetsTwoFly,
	CooldownNeverEnds, SettleNeedsNoClaim, LateWordIsLost, MarkMovesOnFailure, MarkMovesBack,
	NextChannelOnlyAfterFailure, GoneRetiresTheNewRegistration, RepairForgetsTheArm, RepairTakesTheLiving,
	EveryLossCountsAsPoison, OptOutLeavesTheWaiting, SuppressionLeavesTheWaiting, RetirementLeavesTheWaiting,
	TokenStaysWithItsOldOwner, EveryAddressMoves, NewTokenHasNoSuccessor, TaintedIsHandedOn, ErasureLeavesTheData,
	LiftWakesNothing, SensitiveIsKept, ReadsIgnoreTheProject, StatsForgetTheMissed, PurgeFreesTheFact, PurgeForgetsTheKey,
}

func (s *Store) is(f Fault) bool { return s.fault == f }

// leaves says that a fault keeps a change of intent from withdrawing for a reason.
func (s *Store) leaves(why belfry.Reason) bool {
	return map[Fault]belfry.Reason{
		OptOutLeavesTheWaiting: belfry.ReasonOptedOut, SuppressionLeavesTheWaiting: belfry.ReasonSuppressed,
		RetirementLeavesTheWaiting: belfry.ReasonEndpointRetired,
	}[s.fault] == why
}

// spoil leaves out what a fault in arming would.
func (s *Store) spoil(a *belfry.Arming, r row) {
	ignored := map[Fault]belfry.Reason{
		ArmIgnoresTheOptOut: belfry.ReasonOptedOut, ArmIgnoresTheEndpoint: belfry.ReasonEndpointRetired,
		ArmIgnoresTheSuppression: belfry.ReasonSuppressed, ShadowIsSent: belfry.ReasonShadow,
	}
	switch {
	case a.Forbidden != "" && ignored[s.fault] == a.Forbidden:
		a.Forbidden = ""
	case s.is(ArmIgnoresTheDeadline) && a.Now.After(r.Deadline):
		a.Now = r.Deadline
	case s.is(ArmIgnoresThePause):
		a.Pause = nil
	case s.is(ArmIgnoresTheVerdict):
		a.Checked = time.Time{}
	}
}
